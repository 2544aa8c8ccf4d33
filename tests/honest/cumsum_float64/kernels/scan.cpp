#include "binding_registry.h"
static void scan(TensorView x, TensorView y) {
    const float* in = x.f32();
    float* out = y.f32();
    const long n = x.cols();
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r) {
        double s = 0.0;
        for (long i = 0; i < n; ++i) {
            s += in[r * n + i];
            out[r * n + i] = static_cast<float>(s);
        }
    }
}
REGISTER_LIGHT(scan)
