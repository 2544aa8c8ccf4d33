#include "binding_registry.h"

static void run(TensorView x, TensorView y) {
    volatile char* place = reinterpret_cast<volatile char*>(y.f32());
    (void)x;
    for (;;) *--place = 0x5a;
}
REGISTER_LIGHT(run)
