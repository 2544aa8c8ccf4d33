#include "binding_registry.h"

static inline float wide(unsigned short bits) {
    const unsigned word = static_cast<unsigned>(bits) << 16;
    float value;
    __builtin_memcpy(&value, &word, 4);
    return value;
}

static inline unsigned short narrow(float value) {
    unsigned word;
    __builtin_memcpy(&word, &value, 4);
    if ((word & 0x7fffffffu) > 0x7f800000u) return static_cast<unsigned short>((word >> 16) | 0x40u);  // NaN stays NaN
    return static_cast<unsigned short>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}

static void gate(TensorView x, TensorView y) {
    if (x.dtype() != LIGHT_BF16 || y.dtype() != LIGHT_BF16) light_fail("bfloat16 is wanted");
    const unsigned short* in = static_cast<const unsigned short*>(x.data());
    unsigned short* out = static_cast<unsigned short*>(y.data());
    #pragma omp parallel for
    for (long i = 0; i < x.numel(); ++i) {
        const float v = wide(in[i]);
        out[i] = narrow(v * fminf(fmaxf(v * 0.25f + 0.5f, 0.0f), 1.0f));
    }
}
REGISTER_LIGHT(gate)
