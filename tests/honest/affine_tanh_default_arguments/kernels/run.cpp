#include "binding_registry.h"
static void run(TensorView x, TensorView y, float scale, float shift, float bound, bool clamps, float gain, int unused) {
    (void)unused;
    const float* in = x.f32();
    float* out = y.f32();
    #pragma omp parallel for
    for (long i = 0; i < x.numel(); ++i) {
        const float t = tanhf(in[i] * scale + shift);
        out[i] = gain * (clamps ? fminf(fmaxf(t, -bound), bound) : t);
    }
}
REGISTER_LIGHT(run)
