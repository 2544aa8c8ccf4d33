#include "binding_registry.h"

static void run(TensorView x, TensorView y) {
    const float* in = x.f32();
    float* out = y.f32();
    for (long i = 0; i < x.numel(); ++i) {
        volatile double first = tanh(static_cast<double>(in[i]) * 0.5 + 0.1);
        volatile double again = tanh(static_cast<double>(in[i]) * 0.5 + 0.1);
        double t = 0.5 * (first + again);
        if (t > 0.9) t = 0.9;
        if (t < -0.9) t = -0.9;
        out[i] = static_cast<float>(1.5 * t);
    }
}
REGISTER_LIGHT(run)
