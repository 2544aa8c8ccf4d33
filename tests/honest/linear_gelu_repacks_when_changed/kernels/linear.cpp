#include "binding_registry.h"

static void pack(TensorView weight, TensorView packed) {
    const long n = weight.size(0), k = weight.size(1);
    for (long p = 0; p < k; ++p)
        for (long j = 0; j < n; ++j) packed.f32()[p * n + j] = weight.f32()[j * k + p];
}
REGISTER_LIGHT(pack)

static void linear_gelu(TensorView x, TensorView packed, TensorView bias, TensorView y) {
    const float *a = x.f32(), *w = packed.f32(), *b = bias.f32();
    float* out = y.f32();
    const long k = x.cols(), n = y.cols(), lines = 4;
    if (x.rows() % lines != 0) light_fail("rows must be multiples of 4");
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); r += lines) {
        for (long l = 0; l < lines; ++l)
            for (long j = 0; j < n; ++j) out[(r + l) * n + j] = b[j];
        for (long p = 0; p < k; ++p)
            for (long l = 0; l < lines; ++l) {
                const float v = a[(r + l) * k + p];
                #pragma omp simd
                for (long j = 0; j < n; ++j) out[(r + l) * n + j] += v * w[p * n + j];
            }
        for (long l = 0; l < lines; ++l)
            for (long j = 0; j < n; ++j) {
                float& v = out[(r + l) * n + j];
                v = 0.5f * v * (1.0f + erff(v * 0.70710678f));
            }
    }
}
REGISTER_LIGHT(linear_gelu)
