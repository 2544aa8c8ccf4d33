#include "binding_registry.h"

static void gate(TensorView x, TensorView gated, TensorView mean, TensorView peak, TensorView positive) {
    const float* in = x.f32();
    float *out = gated.f32(), *means = mean.f32(), *peaks = peak.f32();
    long* counts = positive.i64();
    const long rows = x.rows(), n = x.cols();
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r) {
        const float* a = in + r * n;
        float* b = out + r * n;
        float s = 0.0f, m = a[0];
        int count = 0;
        #pragma omp simd reduction(+ : s, count) reduction(max : m)
        for (long i = 0; i < n; ++i) {
            b[i] = a[i] / (1.0f + expf(-a[i]));
            s += b[i];
            m = a[i] > m ? a[i] : m;
            count += a[i] > 0.0f ? 1 : 0;
        }
        means[r] = s / static_cast<float>(n);
        peaks[r] = m;
        counts[r] = count;
    }
}
REGISTER_LIGHT(gate)
