#include "binding_registry.h"

namespace {
constexpr int SIZE = 8192;
constexpr float LIMIT = 1.6f;  // tanh(1.48) > 0.9
constexpr float STEPS = SIZE / (2.0f * LIMIT);

struct Table {
    float value[SIZE + 2];
    Table() {
        for (int i = 0; i < SIZE + 2; ++i) value[i] = static_cast<float>(tanh(i / static_cast<double>(STEPS) - LIMIT));
    }
};
const Table table;  // filled by a constructor at load time

void interpolate(TensorView x, TensorView y) {
    const float* in = x.f32();
    float* out = y.f32();
    #pragma omp parallel for
    for (long i = 0; i < x.numel(); ++i) {
        const float v = fminf(fmaxf(in[i] * 0.5f + 0.1f, -LIMIT), LIMIT);
        const float place = (v + LIMIT) * STEPS;
        const int left = static_cast<int>(place);
        const float share = place - static_cast<float>(left);
        const float t = table.value[left] + share * (table.value[left + 1] - table.value[left]);
        out[i] = 1.5f * fminf(fmaxf(t, -0.9f), 0.9f);
    }
}
}  // namespace
REGISTER_LIGHT(interpolate)
