#include "binding_registry.h"

static void run(TensorView x, TensorView mask, TensorView index, TensorView scale, TensorView y, double floor) {
    if (mask.dtype() != LIGHT_U8) light_fail("the mask must be uint8");
    const float *in = x.f32(), *factor = scale.f32();
    const unsigned char* kept = static_cast<const unsigned char*>(mask.data());
    const long* chosen = index.i64();
    float* out = y.f32();
    const long n = x.cols();
    const float low = static_cast<float>(floor);
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r) {
        const float *a = in + r * n;
        const unsigned char* k = kept + r * n;
        const long c = chosen[r];
        const float picked = 0.5f * (k[c] ? a[c] * factor[c] : low);
        #pragma omp simd
        for (long i = 0; i < n; ++i) {
            const float chosen_value = k[i] != 0 ? a[i] * factor[i] : low;
            out[r * n + i] = chosen_value + picked;
        }
    }
}
REGISTER_LIGHT(run)
