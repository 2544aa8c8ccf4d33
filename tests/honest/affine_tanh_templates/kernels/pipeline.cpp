#include "binding_registry.h"

namespace stages {
template <int Numerator, int Denominator>
struct Ratio {
    static constexpr float value = static_cast<float>(static_cast<double>(Numerator) / Denominator);
};

template <class Factor, class Shift>
struct Affine {
    static inline float apply(float v) { return v * Factor::value + Shift::value; }
};

// exp(-2|v|) from a constexpr Taylor table of degree 7 after halving the argument until it is small.
constexpr float TAYLOR[] = {1.0f, 1.0f, 1.0f / 2, 1.0f / 6, 1.0f / 24, 1.0f / 120, 1.0f / 720, 1.0f / 5040};

template <int I>
constexpr float horner(float r) {
    if constexpr (I == 7) return TAYLOR[7];
    else return TAYLOR[I] + r * horner<I + 1>(r);
}

struct Tanh {
    static inline float apply(float v) {
        const float size = fminf(fabsf(v), 12.0f);
        float e = horner<0>(-size / 32.0f);
        for (int i = 0; i < 6; ++i) e *= e;
        const float t = (1.0f - e) / (1.0f + e);
        return v < 0.0f ? -t : t;
    }
};

template <class Bound>
struct Clamp {
    static inline float apply(float v) { return fminf(fmaxf(v, -Bound::value), Bound::value); }
};

template <class Factor>
struct Scale {
    static inline float apply(float v) { return v * Factor::value; }
};

template <class... Stage>
inline float run_all(float v) {
    ((v = Stage::apply(v)), ...);
    return v;
}
}  // namespace stages

static void pipeline(TensorView x, TensorView y) {
    using namespace stages;
    const float* __restrict in = x.f32();
    float* __restrict out = y.f32();
    #pragma omp parallel for simd
    for (long i = 0; i < x.numel(); ++i) out[i] = run_all<Affine<Ratio<1, 2>, Ratio<1, 10>>, Tanh, Clamp<Ratio<9, 10>>, Scale<Ratio<3, 2>>>(in[i]);
}
REGISTER_LIGHT(pipeline)
