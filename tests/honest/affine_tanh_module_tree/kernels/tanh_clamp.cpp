#include "binding_registry.h"
static void tanh_clamp(TensorView x, TensorView y) {
    const float* in = x.f32();
    float* out = y.f32();
    #pragma omp parallel for
    for (long i = 0; i < x.numel(); ++i) out[i] = 1.5f * fminf(fmaxf(tanhf(in[i]), -0.9f), 0.9f);
}
REGISTER_LIGHT(tanh_clamp)
