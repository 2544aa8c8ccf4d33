#include "binding_registry.h"

static void linear_gelu(TensorView x, TensorView weight, TensorView bias, TensorView y) {
    const float *in = x.f32(), *w = weight.f32(), *b = bias.f32();
    float* out = y.f32();
    const long k = x.cols(), n = y.cols();
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r)
        for (long j = 0; j < n; ++j) {
            float s = 0.0f;
            #pragma omp simd reduction(+ : s)
            for (long p = 0; p < k; ++p) s += in[r * k + p] * w[j * k + p];
            s += b[j];
            out[r * n + j] = 0.5f * s * (1.0f + erff(s * 0.70710678f));
        }
}
REGISTER_LIGHT(linear_gelu)
