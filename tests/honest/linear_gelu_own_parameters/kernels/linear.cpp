#include "binding_registry.h"

static void transpose(TensorView weight, TensorView result) {
    const float* w = weight.f32();
    float* out = result.f32();
    for (long i = 0; i < weight.size(0); ++i)
        for (long j = 0; j < weight.size(1); ++j) out[j * weight.size(0) + i] = w[i * weight.size(1) + j];
}
REGISTER_LIGHT(transpose)

static void accumulate(TensorView x, TensorView w, TensorView y) {
    const float *a = x.f32(), *b = w.f32();
    float* out = y.f32();
    const long k = x.cols(), n = y.cols();
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r)
        for (long p = 0; p < k; ++p) {
            const float v = a[r * k + p];
            #pragma omp simd
            for (long j = 0; j < n; ++j) out[r * n + j] += v * b[p * n + j];
        }
}
REGISTER_LIGHT(accumulate)

static void bias_gelu(TensorView y, TensorView bias) {
    float* out = y.f32();
    const float* b = bias.f32();
    #pragma omp parallel for
    for (long r = 0; r < y.rows(); ++r)
        for (long j = 0; j < y.cols(); ++j) {
            const float v = out[r * y.cols() + j] + b[j];
            out[r * y.cols() + j] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
        }
}
REGISTER_LIGHT(bias_gelu)
