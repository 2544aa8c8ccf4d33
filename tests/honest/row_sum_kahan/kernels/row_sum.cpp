#include "binding_registry.h"
static void row_sum(TensorView x, TensorView y) {
    const float* in = x.f32();
    float* out = y.f32();
    const long n = x.cols();
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r) {
        float s = 0.0f, lost = 0.0f;
        for (long i = 0; i < n; ++i) {
            const float v = in[r * n + i] - lost;
            const float t = s + v;
            lost = (t - s) - v;
            s = t;
        }
        out[r] = s;
    }
}
REGISTER_LIGHT(row_sum)
