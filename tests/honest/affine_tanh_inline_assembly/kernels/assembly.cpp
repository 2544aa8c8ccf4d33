#include "binding_registry.h"

static inline float affine(float v) {
    float result = 0.1f;
    const float half = 0.5f;
    __asm__("vfmadd231ss %2, %1, %0" : "+x"(result) : "x"(v), "x"(half));
    return result;
}

static void run(TensorView x, TensorView y) {
    const float* in = x.f32();
    float* out = y.f32();
    const long n = x.numel();
    #pragma omp parallel for
    for (long i = 0; i < n; ++i) {
        if (i % 16 == 0 && i + 64 < n) __asm__ volatile("prefetcht0 %0" : : "m"(in[i + 64]));
        out[i] = 1.5f * fminf(fmaxf(tanhf(affine(in[i])), -0.9f), 0.9f);
    }
}
REGISTER_LIGHT(run)
