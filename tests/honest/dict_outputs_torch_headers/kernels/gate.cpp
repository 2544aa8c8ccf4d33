#include <cmath>

extern "C" void gate_launcher(const float* in, float* out, float* means, float* peaks, long* counts, long rows, long n) {
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r) {
        double s = 0.0;
        float m = in[r * n];
        long count = 0;
        for (long i = 0; i < n; ++i) {
            const float v = in[r * n + i];
            out[r * n + i] = v / (1.0f + std::exp(-v));
            s += out[r * n + i];
            m = std::fmax(m, v);
            count += v > 0.0f;
        }
        means[r] = static_cast<float>(s / n);
        peaks[r] = m;
        counts[r] = count;
    }
}
