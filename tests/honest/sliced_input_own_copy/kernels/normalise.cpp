#include "binding_registry.h"
static void normalise(TensorView x, TensorView y) {
    const float* in = x.f32();
    float* out = y.f32();
    const long n = x.cols();
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r) {
        float s = 0.0f;
        #pragma omp simd reduction(+ : s)
        for (long i = 0; i < n; ++i) s += in[r * n + i] * in[r * n + i];
        const float norm = sqrtf(s + 1e-6f);
        for (long i = 0; i < n; ++i) out[r * n + i] = in[r * n + i] / norm;
    }
}
REGISTER_LIGHT(normalise)
