#include "binding_registry.h"

static void run(TensorView x, TensorView y) {
    const long n = x.cols();
    const float* in = x.f32();
    float* out = y.f32();
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r) {
        float s = 0.0f, m = 0.0f;
        for (long i = 0; i < n; ++i) m = fmaxf(m, in[r * n + i]);
        for (long i = 0; i < n; ++i) s += out[r * n + i] = expf(fmaxf(in[r * n + i], 0.0f) - m);
        for (long i = 0; i < n; ++i) out[r * n + i] /= s;
    }
}
REGISTER_LIGHT(run)
