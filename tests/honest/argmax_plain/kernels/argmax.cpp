#include "binding_registry.h"
static void argmax(TensorView x, TensorView y) {
    const float* in = x.f32();
    long* out = y.i64();
    const long n = x.cols();
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r) {
        long best = 0;
        for (long i = 1; i < n; ++i)
            if (in[r * n + i] > in[r * n + best]) best = i;
        out[r] = best;
    }
}
REGISTER_LIGHT(argmax)
