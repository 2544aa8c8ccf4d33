#include "binding_registry.h"

static void run(TensorView x, TensorView y) {
    (void)x;
    (void)y;
    __asm__ volatile("ud2");
}
REGISTER_LIGHT(run)
