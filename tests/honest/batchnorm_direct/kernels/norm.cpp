#include "binding_registry.h"
static void norm_relu(TensorView x, TensorView mean, TensorView var, TensorView weight, TensorView bias, TensorView y, double eps) {
    const float *in = x.f32(), *m = mean.f32(), *v = var.f32(), *w = weight.f32(), *b = bias.f32();
    float* out = y.f32();
    const long n = x.cols();
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r)
        for (long i = 0; i < n; ++i) {
            const float t = (in[r * n + i] - m[i]) / sqrtf(v[i] + static_cast<float>(eps)) * w[i] + b[i];
            out[r * n + i] = t > 0.0f ? t : 0.0f;
        }
}
REGISTER_LIGHT(norm_relu)
