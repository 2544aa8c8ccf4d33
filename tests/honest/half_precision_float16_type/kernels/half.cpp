#include "binding_registry.h"
static void run(TensorView x, TensorView gain, TensorView y) {
    if (x.dtype() != LIGHT_F16 || gain.dtype() != LIGHT_F16 || y.dtype() != LIGHT_F16) light_fail("float16 is wanted");
    const _Float16* in = static_cast<const _Float16*>(x.data());
    const _Float16* g = static_cast<const _Float16*>(gain.data());
    _Float16* out = static_cast<_Float16*>(y.data());
    const long n = x.cols();
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r)
        for (long i = 0; i < n; ++i) {
            const float v = static_cast<float>(in[r * n + i]);
            const float positive = v > 0.0f ? v : 0.0f;
            out[r * n + i] = static_cast<_Float16>(positive * static_cast<float>(g[i]) - 0.25f * v);
        }
}
REGISTER_LIGHT(run)
