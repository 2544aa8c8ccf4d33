#include "binding_registry.h"
static void pack(TensorView weight, TensorView packed) {
    const float* w = weight.f32();
    float* out = packed.f32();
    const long panels = packed.size(0), k = packed.size(1), width = packed.size(2);
    for (long p = 0; p < panels; ++p)
        for (long i = 0; i < k; ++i)
            for (long j = 0; j < width; ++j) out[(p * k + i) * width + j] = w[(p * width + j) * k + i];
}
REGISTER_LIGHT(pack)
