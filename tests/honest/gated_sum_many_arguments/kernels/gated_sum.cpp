#include "binding_registry.h"

static void gated_sum(const TensorView& a, const TensorView& b, const TensorView& c, const TensorView& d, const TensorView& e,
                      const TensorView& f, const TensorView& g, TensorView y, double half, float one, long n, int block,
                      bool parallel, bool verbose) {
    const float *pa = a.f32(), *pb = b.f32(), *pc = c.f32(), *pd = d.f32(), *pe = e.f32(), *pf = f.f32(), *pg = g.f32();
    float* out = y.f32();
    const float h = static_cast<float>(half);
    if (verbose || n != y.numel()) light_fail("unexpected arguments");
    #pragma omp parallel for if (parallel)
    for (long start = 0; start < n; start += block) {
        const long end = start + block < n ? start + block : n;
        #pragma omp simd
        for (long i = start; i < end; ++i) {
            const float larger = pf[i] > pg[i] ? pf[i] : pg[i];
            out[i] = pa[i] * one / (one + expf(-pb[i])) + pc[i] * pd[i] - pe[i] * h + larger;
        }
    }
}
REGISTER_LIGHT(gated_sum)
