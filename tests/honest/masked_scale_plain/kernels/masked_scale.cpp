#include "binding_registry.h"

static void masked_scale(TensorView x, TensorView mask, TensorView index, TensorView scale, float floor, TensorView y) {
    const float *in = x.f32(), *factor = scale.f32();
    const bool* kept = mask.boolean();
    const long* chosen = index.i64();
    float* out = y.f32();
    const long rows = x.rows(), n = x.cols();
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r) {
        const long at = r * n + chosen[r];
        const float picked = 0.5f * (kept[at] ? in[at] * factor[chosen[r]] : floor);
        for (long i = 0; i < n; ++i) out[r * n + i] = (kept[r * n + i] ? in[r * n + i] * factor[i] : floor) + picked;
    }
}
REGISTER_LIGHT(masked_scale)
