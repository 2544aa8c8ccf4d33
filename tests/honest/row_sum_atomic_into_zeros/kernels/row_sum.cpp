#include "binding_registry.h"
static void row_sum(TensorView x, TensorView y) {
    const float* in = x.f32();
    float* out = y.f32();
    const long n = x.cols(), part = 128, parts = (n + part - 1) / part;
    #pragma omp parallel for schedule(dynamic, 8)
    for (long job = 0; job < x.rows() * parts; ++job) {
        const long r = job / parts, from = job % parts * part, to = from + part < n ? from + part : n;
        float s = 0.0f;
        #pragma omp simd reduction(+ : s)
        for (long i = from; i < to; ++i) s += in[r * n + i];
        #pragma omp atomic
        out[r] += s;
    }
}
REGISTER_LIGHT(row_sum)
