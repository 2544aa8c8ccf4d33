#include "binding_registry.h"

static void run(TensorView x, TensorView y) {
    #pragma omp parallel for
    for (long i = 0; i < x.numel(); ++i) {
        if (i == 4711) throw 1;
        y.f32()[i] = x.f32()[i];
    }
}
REGISTER_LIGHT(run)
