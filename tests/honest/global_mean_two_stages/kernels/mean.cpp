#include "binding_registry.h"

static void partial_sums(TensorView x, TensorView partial) {
    const float* in = x.f32();
    double* out = partial.f64();
    const long n = x.numel(), parts = partial.numel(), share = (n + parts - 1) / parts;
    #pragma omp parallel for
    for (long p = 0; p < parts; ++p) {
        const long to = (p + 1) * share < n ? (p + 1) * share : n;
        double s = 0.0;
        #pragma omp simd reduction(+ : s)
        for (long i = p * share; i < to; ++i) s += in[i];
        out[p] = s;
    }
}
REGISTER_LIGHT(partial_sums)

static void finish(TensorView partial, TensorView bias, TensorView y, long count) {
    double s = 0.0;
    for (long p = 0; p < partial.numel(); ++p) s += partial.f64()[p];
    for (long i = 0; i < y.numel(); ++i) y.f32()[i] = static_cast<float>(s / static_cast<double>(count)) * 2.0f + bias.f32()[i];
}
REGISTER_LIGHT(finish)
