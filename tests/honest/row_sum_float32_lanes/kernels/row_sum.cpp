#include "binding_registry.h"
static void row_sum(TensorView x, TensorView y) {
    const float* in = x.f32();
    float* out = y.f32();
    const long n = x.cols();
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r) {
        float lane[8] = {};
        long i = 0;
        for (; i + 8 <= n; i += 8)
            for (int j = 0; j < 8; ++j) lane[j] += in[r * n + i + j];
        for (; i < n; ++i) lane[0] += in[r * n + i];
        out[r] = ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
    }
}
REGISTER_LIGHT(row_sum)
