#include "binding_registry.h"

static void gate(TensorView x, TensorView buffer, TensorView positive) {
    const float* in = x.f32();
    float* out = buffer.f32();
    long* counts = positive.i64();
    const long rows = x.rows(), n = x.cols();
    float *means = out + rows * n, *peaks = means + rows;
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r) {
        double s = 0.0;
        float m = in[r * n];
        for (long i = 0; i < n; ++i) {
            const float v = in[r * n + i], g = v / (1.0f + expf(-v));
            out[r * n + i] = g;
            s += g;
            m = fmaxf(m, v);
            if (v > 0.0f) ++counts[r];
        }
        means[r] = static_cast<float>(s / static_cast<double>(n));
        peaks[r] = m;
    }
}
REGISTER_LIGHT(gate)
