#include "binding_registry.h"
#include <math.h>

static void quantised(TensorView x, TensorView w, TensorView b, TensorView y) {
    const float *in = x.f32(), *weight = w.f32(), *bias = b.f32();
    float* out = y.f32();
    const long rows = x.rows(), k = x.cols(), n = w.rows();
    #pragma omp parallel for
    for (long i = 0; i < rows; ++i)
        for (long j = 0; j < n; ++j) {
            float sum = bias[j];
            for (long q = 0; q < k; ++q) sum += in[i * k + q] * weight[j * k + q];
            out[i * n + j] = fminf(fmaxf(rintf(sum * 256.0f), -512.0f), 511.0f) / 256.0f;
        }
}
REGISTER_LIGHT(quantised)
