#include "binding_registry.h"
static void row_sum(TensorView x, TensorView y, long block) {
    const float* in = x.f32();
    float* out = y.f32();
    const long n = x.cols();
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r) {
        float total = 0.0f;
        for (long from = 0; from < n; from += block) {
            float s = 0.0f;
            for (long i = from; i < n && i < from + block; ++i) s += in[r * n + i];
            total += s;
        }
        out[r] = total;
    }
}
REGISTER_LIGHT(row_sum)
