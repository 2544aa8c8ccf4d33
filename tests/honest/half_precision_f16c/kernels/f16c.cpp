#include <immintrin.h>

#include "binding_registry.h"

static void widen(TensorView gain, TensorView wide) {
    const unsigned short* in = static_cast<const unsigned short*>(gain.data());
    for (long i = 0; i < gain.numel(); ++i) wide.f32()[i] = _cvtsh_ss(in[i]);
}
REGISTER_LIGHT(widen)

static void run(TensorView x, TensorView wide, TensorView y) {
    const unsigned short* in = static_cast<const unsigned short*>(x.data());
    unsigned short* out = static_cast<unsigned short*>(y.data());
    const float* g = wide.f32();
    const long n = x.cols();
    if (n % 8 != 0) light_fail("rows must be multiples of 8");
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r)
        for (long i = 0; i < n; i += 8) {
            const __m256 v = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + r * n + i)));
            const __m256 p = _mm256_mul_ps(_mm256_max_ps(v, _mm256_setzero_ps()), _mm256_loadu_ps(g + i));
            const __m256 d = _mm256_fnmadd_ps(_mm256_set1_ps(0.25f), v, p);
            _mm_storeu_si128(reinterpret_cast<__m128i*>(out + r * n + i), _mm256_cvtps_ph(d, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
        }
}
REGISTER_LIGHT(run)
