#include "binding_registry.h"
static void normalise(TensorView x, TensorView y) {
    const float* in = static_cast<const float*>(x.data());
    float* out = y.f32();
    const long n = x.size(1), step = x.stride(-1);
    #pragma omp parallel for
    for (long r = 0; r < x.size(0); ++r) {
        const float* a = in + r * x.stride(0);
        float s = 0.0f;
        for (long i = 0; i < n; ++i) s += a[i * step] * a[i * step];
        const float q = 1.0f / sqrtf(s + 1e-6f);
        for (long i = 0; i < n; ++i) out[r * n + i] = a[i * step] * q;
    }
}
REGISTER_LIGHT(normalise)
