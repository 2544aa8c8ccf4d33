#include "binding_registry.h"
static void pack(TensorView x, TensorView packed) {
    const float* in = static_cast<const float*>(x.data());
    float* out = packed.f32();
    #pragma omp parallel for collapse(2)
    for (long r = 0; r < x.size(0); ++r)
        for (long c = 0; c < x.size(1); ++c) out[r * x.size(1) + c] = in[r * x.stride(0) + c * x.stride(1)];
}
REGISTER_LIGHT(pack)
