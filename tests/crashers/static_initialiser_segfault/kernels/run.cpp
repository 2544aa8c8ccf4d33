#include "binding_registry.h"

struct Crash {
    Crash() {
        volatile int* volatile nowhere = nullptr;
        *nowhere = 1;
    }
};
static Crash crash;

static void run(TensorView x, TensorView y) { y.f32()[0] = x.f32()[0]; }
REGISTER_LIGHT(run)
