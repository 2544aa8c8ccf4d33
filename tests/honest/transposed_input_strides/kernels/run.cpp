#include "binding_registry.h"

static void run(TensorView x, TensorView y) {
    if (x.dtype() != LIGHT_F32 || y.dtype() != LIGHT_F32) light_fail("float32 is wanted");
    const float* in = static_cast<const float*>(x.data());
    float* out = static_cast<float*>(y.data());
    const int outer = x.stride(0) >= x.stride(1) ? 0 : 1, inner = 1 - outer;
    #pragma omp parallel for
    for (long a = 0; a < x.size(outer); ++a)
        for (long b = 0; b < x.size(inner); ++b) {
            const float v = in[a * x.stride(outer) + b * x.stride(inner)];
            out[a * y.stride(outer) + b * y.stride(inner)] = sinf(v) * 0.5f + v;
        }
}
REGISTER_LIGHT(run)
