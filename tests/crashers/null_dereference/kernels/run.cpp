#include "binding_registry.h"

static void run(TensorView x, TensorView y) {
    volatile float* volatile nowhere = nullptr;
    nowhere[0] = x.f32()[0];
    y.f32()[0] = nowhere[0];
}
REGISTER_LIGHT(run)
