#include "binding_registry.h"

static void run(TensorView x, TensorView y) {
    volatile long count = x.numel();
    #pragma omp parallel
    while (count >= 0) {
    }
    y.f32()[0] = 0.0f;
}
REGISTER_LIGHT(run)
