#include "binding_registry.h"

static volatile char huge[1L << 36] = {1};

static void run(TensorView x, TensorView y) { y.f32()[0] = x.f32()[0] + huge[x.numel()]; }
REGISTER_LIGHT(run)
