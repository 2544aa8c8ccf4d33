#include "binding_registry.h"
#include <algorithm>
#include <string.h>
static void run(TensorView tx, TensorView te, TensorView ty) {
    const float* x = tx.f32();
    const long* from = te.i64();
    const long edges = te.size(1), nodes = tx.size(0), width = tx.size(1);
    const long* to = from + edges;
    float* y = ty.f32();
    #pragma omp parallel for
    for (long n = 0; n < nodes; ++n) {
        memset(y + n * width, 0, sizeof(float) * width);
        for (long e = std::lower_bound(to, to + edges, n) - to; e < edges && to[e] == n; ++e)
            for (long k = 0; k < width; ++k) y[n * width + k] += x[from[e] * width + k];
    }
}
REGISTER_LIGHT(run)
