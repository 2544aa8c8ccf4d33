#include "binding_registry.h"

static void relu(TensorView x, TensorView y) {
    const float* in = x.f32();
    float* out = y.f32();
    #pragma omp parallel for simd
    for (long i = 0; i < x.numel(); ++i) out[i] = in[i] > 0.0f ? in[i] : 0.0f;
}
REGISTER_LIGHT(relu)

static void softmax(TensorView x, TensorView y, long dim) {
    if (dim != -1) light_fail("only the last dimension");
    const float* in = x.f32();
    float* out = y.f32();
    const long n = x.cols();
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r) {
        float m = in[r * n], s = 0.0f;
        for (long i = 0; i < n; ++i) m = in[r * n + i] > m ? in[r * n + i] : m;
        #pragma omp simd reduction(+ : s)
        for (long i = 0; i < n; ++i) {
            out[r * n + i] = expf(in[r * n + i] - m);
            s += out[r * n + i];
        }
        for (long i = 0; i < n; ++i) out[r * n + i] /= s;
    }
}
REGISTER_LIGHT(softmax)

static void matmul(TensorView, TensorView, TensorView) { light_fail("not needed here"); }
REGISTER_LIGHT(matmul)
