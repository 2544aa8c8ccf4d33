#include <cstdlib>

#include "binding_registry.h"

static void run(TensorView x, TensorView y) {
    (void)x;
    (void)y;
    std::abort();
}
REGISTER_LIGHT(run)
