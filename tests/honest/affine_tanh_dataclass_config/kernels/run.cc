#include "binding_registry.h"

static void run(TensorView x, TensorView y, double scale, double shift, double bound, float gain) {
    const float* in = x.f32();
    float* out = y.f32();
    const float a = static_cast<float>(scale), b = static_cast<float>(shift), c = static_cast<float>(bound);
    #pragma omp parallel for schedule(static)
    for (long i = 0; i < x.numel(); ++i) out[i] = gain * fminf(fmaxf(tanhf(in[i] * a + b), -c), c);
}
REGISTER_LIGHT(run)
