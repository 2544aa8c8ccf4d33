#include "binding_registry.h"

static void fold(TensorView weight, TensorView bias, TensorView mean, TensorView var, TensorView scale, TensorView shift) {
    for (long i = 0; i < scale.numel(); ++i) {
        scale.f32()[i] = weight.f32()[i] / sqrtf(var.f32()[i] + 1e-5f);
        shift.f32()[i] = bias.f32()[i] - mean.f32()[i] * scale.f32()[i];
    }
}
REGISTER_LIGHT(fold)

static void run(TensorView x, TensorView scale, TensorView shift, TensorView y) {
    const float *in = x.f32(), *a = scale.f32(), *b = shift.f32();
    float* out = y.f32();
    const long n = x.cols();
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r)
        for (long i = 0; i < n; ++i) out[r * n + i] = fmaxf(in[r * n + i] * a[i] + b[i], 0.0f);
}
REGISTER_LIGHT(run)
