#include <atomic>
#include <thread>

#include "binding_registry.h"

static void row(const float* a, float* b, long n) {
    float m = 0.0f, s = 0.0f;
    for (long i = 0; i < n; ++i) m = a[i] > m ? a[i] : m;
    #pragma omp simd reduction(+ : s)
    for (long i = 0; i < n; ++i) {
        b[i] = expf((a[i] > 0.0f ? a[i] : 0.0f) - m);
        s += b[i];
    }
    for (long i = 0; i < n; ++i) b[i] /= s;
}

static void run(TensorView x, TensorView y) {
    const float* in = x.f32();
    float* out = y.f32();
    const long rows = x.rows(), n = x.cols();
    std::atomic<long> next{0};
    std::atomic<long> done{0};
    auto work = [&] {
        for (long r = next.fetch_add(1, std::memory_order_relaxed); r < rows; r = next.fetch_add(1, std::memory_order_relaxed)) {
            row(in + r * n, out + r * n, n);
            done.fetch_add(1, std::memory_order_release);
        }
    };
    std::thread helper(work);
    work();
    helper.join();
    if (done.load(std::memory_order_acquire) != rows) light_fail("rows were lost");
}
REGISTER_LIGHT(run)
