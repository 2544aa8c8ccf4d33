#include "binding_registry.h"

static void affine(TensorView x, TensorView scratch) {
    const float* in = x.f32();
    float* out = scratch.f32();
    #pragma omp parallel for simd
    for (long i = 0; i < x.numel(); ++i) out[i] = in[i] * 0.5f + 0.1f;
}
REGISTER_LIGHT(affine)

static void hyperbolic_tangent(TensorView scratch) {
    float* values = scratch.f32();
    #pragma omp parallel for
    for (long i = 0; i < scratch.numel(); ++i) values[i] = tanhf(values[i]);
}
REGISTER_LIGHT(hyperbolic_tangent)

static void clamp_in_place(TensorView scratch, float bound, float gain) {
    float* values = scratch.f32();
    #pragma omp parallel for simd
    for (long i = 0; i < scratch.numel(); ++i) values[i] = gain * (values[i] > bound ? bound : (values[i] < -bound ? -bound : values[i]));
}
REGISTER_LIGHT(clamp_in_place)

static void store(TensorView scratch, TensorView y) { __builtin_memcpy(y.f32(), scratch.f32(), sizeof(float) * y.numel()); }
REGISTER_LIGHT(store)

static void fill_for_debugging(TensorView y, double value) {
    for (long i = 0; i < y.numel(); ++i) y.f32()[i] = static_cast<float>(value);
}
REGISTER_LIGHT(fill_for_debugging)
