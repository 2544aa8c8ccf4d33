#include "binding_registry.h"

static void fold(TensorView weight, TensorView bias, TensorView mean, TensorView var, TensorView folded, double eps) {
    float *scale = folded.f32(), *shift = scale + folded.cols();
    for (long i = 0; i < folded.cols(); ++i) {
        const double s = weight.f32()[i] / sqrt(var.f32()[i] + eps);
        scale[i] = static_cast<float>(s);
        shift[i] = static_cast<float>(bias.f32()[i] - mean.f32()[i] * s);
    }
}
REGISTER_LIGHT(fold)

static void scale_shift_relu(TensorView x, TensorView scale, TensorView shift, TensorView y) {
    const float *in = x.f32(), *a = scale.f32(), *b = shift.f32();
    float* out = y.f32();
    const long n = x.cols();
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r)
        #pragma omp simd
        for (long i = 0; i < n; ++i) {
            const float t = in[r * n + i] * a[i] + b[i];
            out[r * n + i] = t > 0.0f ? t : 0.0f;
        }
}
REGISTER_LIGHT(scale_shift_relu)
