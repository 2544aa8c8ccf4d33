#include <cstdlib>
#include <omp.h>

#include "binding_registry.h"

static void range(const float* in, float* out, long from, long to) {
    #pragma omp simd
    for (long i = from; i < to; ++i) out[i] = in[i] * 0.5f + 0.1f;
    for (long i = from; i < to; ++i) out[i] = 1.5f * fminf(fmaxf(tanhf(out[i]), -0.9f), 0.9f);
}

static void run(TensorView x, TensorView y, int threads) {
    const char* verbose = std::getenv("AFFINE_VERBOSE");
    if (verbose != nullptr) light_fail("verbose mode is not implemented");
    omp_set_num_threads(threads);
    omp_set_schedule(omp_sched_guided, 4);
    const float* in = x.f32();
    float* out = y.f32();
    const long n = x.numel(), half = n / 2;
    #pragma omp parallel sections
    {
        #pragma omp section
        range(in, out, 0, half);
        #pragma omp section
        range(in, out, half, n);
    }
}
REGISTER_LIGHT(run)
