#include <future>
#include <vector>

#include "binding_registry.h"

static float part(const float* in, float* out, long from, long to, long n) {
    std::vector<float> scratch(static_cast<unsigned long>(n));
    float total = 0.0f;
    for (long r = from; r < to; ++r) {
        const float* a = in + r * n;
        float m = 0.0f, s = 0.0f;
        for (long i = 0; i < n; ++i) m = a[i] > m ? a[i] : m;
        #pragma omp simd reduction(+ : s)
        for (long i = 0; i < n; ++i) {
            scratch[i] = expf((a[i] > 0.0f ? a[i] : 0.0f) - m);
            s += scratch[i];
        }
        for (long i = 0; i < n; ++i) out[r * n + i] = scratch[i] / s;
        total += s;
    }
    return total;
}

static void run(TensorView x, TensorView y) {
    const long rows = x.rows(), n = x.cols(), parts = 4, share = (rows + parts - 1) / parts;
    const float* in = x.f32();
    float* out = y.f32();
    std::vector<std::future<float>> tasks;
    for (long p = 0; p < parts; ++p) {
        const long from = p * share, to = from + share < rows ? from + share : rows;
        tasks.push_back(std::async(p == 0 ? std::launch::deferred : std::launch::async, part, in, out, from, to, n));
    }
    for (std::future<float>& task : tasks) task.get();
}
REGISTER_LIGHT(run)
