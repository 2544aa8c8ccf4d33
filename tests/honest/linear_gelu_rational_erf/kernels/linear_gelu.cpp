#include "binding_registry.h"

static inline float own_erf(float v) {
    const float a = v < 0.0f ? -v : v;
    const float t = 1.0f / (1.0f + 0.3275911f * a);
    const float p = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
    const float e = 1.0f - p * expf(-a * a);
    return v < 0.0f ? -e : e;
}

static void linear_gelu(TensorView x, TensorView transposed, TensorView bias, TensorView y) {
    const float *in = x.f32(), *w = static_cast<const float*>(transposed.data()), *b = bias.f32();
    float* out = y.f32();
    const long k = x.cols(), n = y.cols(), step = transposed.stride(0), line = transposed.stride(1);
    if (step != 1) light_fail("the transposed view must have unit stride in its rows");
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r) {
        float* o = out + r * n;
        for (long j = 0; j < n; ++j) {
            float s = b[j];
            #pragma omp simd reduction(+ : s)
            for (long p = 0; p < k; ++p) s += in[r * k + p] * w[j * line + p];
            o[j] = s;
        }
        #pragma omp simd
        for (long j = 0; j < n; ++j) o[j] = 0.5f * o[j] * (1.0f + own_erf(o[j] * 0.70710678f));
    }
}
REGISTER_LIGHT(linear_gelu)
