#include <immintrin.h>

#include "binding_registry.h"

static inline float gelu(float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678f)); }

// Four rows times one panel of sixteen columns.
static void tile(const float* in, const float* panel, const float* bias, float* out, long k, long n) {
    __m256 sum[4][2];
    for (int r = 0; r < 4; ++r) {
        sum[r][0] = _mm256_loadu_ps(bias);
        sum[r][1] = _mm256_loadu_ps(bias + 8);
    }
    for (long p = 0; p < k; ++p) {
        const __m256 low = _mm256_loadu_ps(panel + p * 16), high = _mm256_loadu_ps(panel + p * 16 + 8);
        for (int r = 0; r < 4; ++r) {
            const __m256 v = _mm256_broadcast_ss(in + r * k + p);
            sum[r][0] = _mm256_fmadd_ps(v, low, sum[r][0]);
            sum[r][1] = _mm256_fmadd_ps(v, high, sum[r][1]);
        }
    }
    for (int r = 0; r < 4; ++r) {
        alignas(32) float line[16];
        _mm256_store_ps(line, sum[r][0]);
        _mm256_store_ps(line + 8, sum[r][1]);
        for (int j = 0; j < 16; ++j) out[r * n + j] = gelu(line[j]);
    }
}

static void product(TensorView x, TensorView packed, TensorView bias, TensorView y) {
    const long rows = x.rows(), k = x.cols(), n = y.cols(), panels = packed.size(0);
    if (rows % 4 != 0 || packed.size(2) != 16) light_fail("rows must be multiples of 4");
    const float *in = x.f32(), *w = packed.f32(), *b = bias.f32();
    float* out = y.f32();
    #pragma omp parallel for collapse(2)
    for (long r = 0; r < rows; r += 4)
        for (long p = 0; p < panels; ++p) tile(in + r * k, w + p * k * 16, b + p * 16, out + r * n + p * 16, k, n);
}
REGISTER_LIGHT(product)
