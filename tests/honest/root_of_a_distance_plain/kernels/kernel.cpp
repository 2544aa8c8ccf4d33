#include "binding_registry.h"
#include <math.h>

static void momenta(TensorView x, TensorView w, TensorView b, TensorView p, TensorView y) {
    const float *energy = x.f32(), *weight = w.f32(), *bias = b.f32();
    float *in = p.f32(), *out = y.f32();
    const long rows = x.rows(), k = x.cols(), n = w.rows();
    #pragma omp parallel for
    for (long i = 0; i < rows * k; ++i) in[i] = copysignf(sqrtf(fmaxf(energy[i] * energy[i] - 1.0f, 0.0f)), energy[i]);
    #pragma omp parallel for
    for (long i = 0; i < rows; ++i)
        for (long j = 0; j < n; ++j) {
            float sum = 0.0f;
            #pragma omp simd reduction(+:sum)
            for (long q = 0; q < k; ++q) sum += in[i * k + q] * weight[j * k + q];
            out[i * n + j] = sum + bias[j];
        }
}
REGISTER_LIGHT(momenta)
