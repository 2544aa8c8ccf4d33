#include "binding_registry.h"
#include "common.h"

static void light_part(TensorView x, TensorView y) {
    const float* in = x.f32();
    float* out = y.f32();
    const long n = x.cols();
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r) affine_tanh_row(in + r * n, out + r * n, n);
}
REGISTER_LIGHT(light_part)
