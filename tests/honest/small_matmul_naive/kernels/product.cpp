#include "binding_registry.h"
static void product(TensorView a, TensorView transposed, TensorView c) {
    const float* x = a.f32();
    const float* w = static_cast<const float*>(transposed.data());
    float* out = c.f32();
    const long k = a.size(1), n = transposed.size(0);
    for (long i = 0; i < a.size(0); ++i)
        for (long j = 0; j < n; ++j) {
            float s = 0.0f;
            for (long p = 0; p < k; ++p) s += x[i * k + p] * w[j * transposed.stride(0) + p * transposed.stride(1)];
            out[i * n + j] = s * 0.125f;
        }
}
REGISTER_LIGHT(product)
