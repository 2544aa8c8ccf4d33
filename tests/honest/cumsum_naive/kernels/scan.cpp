#include "binding_registry.h"
static void scan(TensorView x, TensorView y) {
    const float* in = x.f32();
    float* out = y.f32();
    const long n = x.cols();
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r) {
        float s = 0.0f;
        for (long i = 0; i < n; ++i) out[r * n + i] = s += in[r * n + i];
    }
}
REGISTER_LIGHT(scan)
