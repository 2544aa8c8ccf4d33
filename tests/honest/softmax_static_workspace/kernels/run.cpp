#include <memory>

#include "binding_registry.h"

static std::unique_ptr<float[]> workspace;
static long workspace_size = 0;

static void run(TensorView x, TensorView y) {
    const long rows = x.rows(), n = x.cols();
    if (workspace_size < x.numel()) {
        workspace.reset(new float[x.numel()]);
        workspace_size = x.numel();
    }
    const float* in = x.f32();
    float *e = workspace.get(), *out = y.f32();
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r) {
        float m = 0.0f, s = 0.0f;
        for (long i = 0; i < n; ++i) m = in[r * n + i] > m ? in[r * n + i] : m;
        #pragma omp simd reduction(+ : s)
        for (long i = 0; i < n; ++i) {
            const float v = in[r * n + i] > 0.0f ? in[r * n + i] : 0.0f;
            e[r * n + i] = expf(v - m);
            s += e[r * n + i];
        }
        #pragma omp simd
        for (long i = 0; i < n; ++i) out[r * n + i] = e[r * n + i] / s;
    }
}
REGISTER_LIGHT(run)
