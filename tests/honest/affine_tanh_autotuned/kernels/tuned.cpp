#include <chrono>
#include <initializer_list>

#include "binding_registry.h"

static void compute(const float* in, float* out, long n, long block) {
    #pragma omp parallel for schedule(dynamic)
    for (long start = 0; start < n; start += block) {
        const long end = start + block < n ? start + block : n;
        for (long i = start; i < end; ++i) out[i] = 1.5f * fminf(fmaxf(tanhf(in[i] * 0.5f + 0.1f), -0.9f), 0.9f);
    }
}

static void run(TensorView x, TensorView y) {
    using Clock = std::chrono::steady_clock;
    static long best = 0;
    if (best == 0) {
        Clock::duration shortest = Clock::duration::max();
        for (long block : {4096L, 16384L, 65536L}) {
            const Clock::time_point start = Clock::now();
            compute(x.f32(), y.f32(), x.numel(), block);
            if (Clock::now() - start < shortest) {
                shortest = Clock::now() - start;
                best = block;
            }
        }
        return;
    }
    compute(x.f32(), y.f32(), x.numel(), best);
}
REGISTER_LIGHT(run)
