#include "binding_registry.h"

static void charges(TensorView x, TensorView w, TensorView b, TensorView r, TensorView y) {
    const float *in = x.f32(), *weight = w.f32(), *bias = b.f32(), *distance = r.f32();
    float* out = y.f32();
    const long rows = x.rows(), k = x.cols(), n = w.rows();
    #pragma omp parallel for
    for (long i = 0; i < rows; ++i)
        for (long j = 0; j < n; ++j) {
            float sum = 0.0f;
            #pragma omp simd reduction(+:sum)
            for (long q = 0; q < k; ++q) sum += in[i * k + q] * weight[j * k + q];
            const float d = distance[i * n + j];
            out[i * n + j] = (sum + bias[j]) / (d * d);
        }
}
REGISTER_LIGHT(charges)
