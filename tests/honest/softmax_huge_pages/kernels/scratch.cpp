#include <cstdlib>
#include <sys/mman.h>

#include "binding_registry.h"

static float* scratch(unsigned long bytes) {
    static void* block = nullptr;
    static unsigned long held = 0;
    if (held < bytes) {
        std::free(block);
        const unsigned long page = 2UL << 20;
        held = (bytes + page - 1) / page * page;
        if (posix_memalign(&block, page, held) != 0) light_fail("no scratch");
        madvise(block, held, MADV_HUGEPAGE);
    }
    return static_cast<float*>(block);
}

static void run(TensorView x, TensorView y) {
    const long rows = x.rows(), n = x.cols();
    float* e = scratch(static_cast<unsigned long>(x.numel()) * sizeof(float));
    const float* in = x.f32();
    float* out = y.f32();
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r) {
        float m = 0.0f, s = 0.0f;
        for (long i = 0; i < n; ++i) m = in[r * n + i] > m ? in[r * n + i] : m;
        #pragma omp simd reduction(+ : s)
        for (long i = 0; i < n; ++i) {
            e[r * n + i] = expf((in[r * n + i] > 0.0f ? in[r * n + i] : 0.0f) - m);
            s += e[r * n + i];
        }
        for (long i = 0; i < n; ++i) out[r * n + i] = e[r * n + i] / s;
    }
}
REGISTER_LIGHT(run)
