#include "binding_registry.h"
static void run(TensorView a, TensorView b, TensorView c, TensorView d, TensorView e, TensorView f, TensorView g, TensorView y) {
    float* out = y.f32();
    #pragma omp parallel for
    for (long i = 0; i < y.numel(); ++i) {
        const float gate = 1.0f / (1.0f + expf(-b.f32()[i]));
        out[i] = a.f32()[i] * gate + c.f32()[i] * d.f32()[i] - 0.5f * e.f32()[i] + fmaxf(f.f32()[i], g.f32()[i]);
    }
}
REGISTER_LIGHT(run)
