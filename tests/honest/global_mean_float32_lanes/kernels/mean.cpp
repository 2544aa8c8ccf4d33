#include "binding_registry.h"

static void mean_plus_bias(TensorView x, TensorView bias, TensorView y) {
    const float* in = x.f32();
    const long n = x.numel(), block = 4096;
    float total = 0.0f;
    #pragma omp parallel for reduction(+ : total)
    for (long from = 0; from < n; from += block) {
        const long to = from + block < n ? from + block : n;
        float s = 0.0f;
        #pragma omp simd reduction(+ : s)
        for (long i = from; i < to; ++i) s += in[i];
        total += s;
    }
    const float mean = total / static_cast<float>(n);
    for (long i = 0; i < y.numel(); ++i) y.f32()[i] = mean * 2.0f + bias.f32()[i];
}
REGISTER_LIGHT(mean_plus_bias)
