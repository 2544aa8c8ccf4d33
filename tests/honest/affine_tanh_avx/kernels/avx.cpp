#include <immintrin.h>

#include "binding_registry.h"

// exp(v) for |v| <= 30: 2^k times a polynomial of degree 6 on [-ln2/2, ln2/2].
static inline __m256 exp8(__m256 v) {
    const __m256 k = _mm256_round_ps(_mm256_mul_ps(v, _mm256_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(k, _mm256_set1_ps(0.693359375f), v);
    r = _mm256_fnmadd_ps(k, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.0f / 720.0f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    const __m256i bits = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(k), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(p, _mm256_castsi256_ps(bits));
}

static inline __m256 tanh8(__m256 v) {
    const __m256 limit = _mm256_set1_ps(15.0f);
    v = _mm256_max_ps(_mm256_min_ps(v, limit), _mm256_sub_ps(_mm256_setzero_ps(), limit));
    const __m256 one = _mm256_set1_ps(1.0f);
    const __m256 e = exp8(_mm256_add_ps(v, v));
    return _mm256_div_ps(_mm256_sub_ps(e, one), _mm256_add_ps(e, one));
}

static inline float one(float v) { return 1.5f * fminf(fmaxf(tanhf(v * 0.5f + 0.1f), -0.9f), 0.9f); }

static void run(TensorView x, TensorView y) {
    const float* in = x.f32();
    float* out = y.f32();
    const long n = x.numel();
    const bool streams = reinterpret_cast<unsigned long>(out) % 32 == 0;
    #pragma omp parallel for
    for (long i = 0; i < n / 8; ++i) {
        const __m256 v = _mm256_fmadd_ps(_mm256_loadu_ps(in + 8 * i), _mm256_set1_ps(0.5f), _mm256_set1_ps(0.1f));
        const __m256 c = _mm256_max_ps(_mm256_min_ps(tanh8(v), _mm256_set1_ps(0.9f)), _mm256_set1_ps(-0.9f));
        const __m256 t = _mm256_mul_ps(c, _mm256_set1_ps(1.5f));
        if (streams) _mm256_stream_ps(out + 8 * i, t);
        else _mm256_storeu_ps(out + 8 * i, t);
    }
    _mm_sfence();
    for (long i = n / 8 * 8; i < n; ++i) out[i] = one(in[i]);
}
REGISTER_LIGHT(run)
