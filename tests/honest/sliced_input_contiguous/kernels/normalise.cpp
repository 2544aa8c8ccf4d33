#include "binding_registry.h"
static void normalise(TensorView x, TensorView y) {
    const float* in = x.f32();
    float* out = y.f32();
    const long n = x.cols();
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r) {
        double s = 1e-6;
        for (long i = 0; i < n; ++i) s += static_cast<double>(in[r * n + i]) * in[r * n + i];
        const float q = static_cast<float>(1.0 / sqrt(s));
        for (long i = 0; i < n; ++i) out[r * n + i] = in[r * n + i] * q;
    }
}
REGISTER_LIGHT(normalise)
