#include "binding_registry.h"
static void product(TensorView a, TensorView b, TensorView c) {
    const float *left = a.f32(), *right = b.f32();
    float* out = c.f32();
    const long n = a.rows();
    #pragma omp parallel for schedule(dynamic, 8)
    for (long i = 0; i < n; ++i) {
        float* row = out + i * n;
        for (long j = 0; j < n; ++j) row[j] = 0.0f;
        for (long k = i; k < n; ++k)
            for (long j = k; j < n; ++j) row[j] += left[i * n + k] * right[k * n + j];
    }
}
REGISTER_LIGHT(product)
