#include "binding_registry.h"

static void relu_softmax(TensorView x, TensorView y) {
    const float* in = x.f32();
    float* out = y.f32();
    const long rows = x.rows(), n = x.cols();
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r) {
        const float* a = in + r * n;
        float* b = out + r * n;
        float m = 0.0f;
        #pragma omp simd reduction(max : m)
        for (long i = 0; i < n; ++i) m = a[i] > m ? a[i] : m;
        float s = 0.0f;
        #pragma omp simd reduction(+ : s)
        for (long i = 0; i < n; ++i) {
            const float v = a[i] > 0.0f ? a[i] : 0.0f;
            b[i] = expf(v - m);
            s += b[i];
        }
        const float q = 1.0f / s;
        #pragma omp simd
        for (long i = 0; i < n; ++i) b[i] *= q;
    }
}
REGISTER_LIGHT(relu_softmax)
