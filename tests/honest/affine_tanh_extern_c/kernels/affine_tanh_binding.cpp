#include <omp.h>

#include "binding_registry.h"

extern "C" int affine_tanh_launcher(const float* in, float* out, long n, int workers);

static void affine_tanh(TensorView x, TensorView y) {
    if (affine_tanh_launcher(x.f32(), y.f32(), x.numel(), omp_get_max_threads()) != 0) light_fail("the launcher failed");
}
REGISTER_LIGHT(affine_tanh)
