#include "binding_registry.h"

extern "C" void nobody_defines_this(const float* in, float* out, long n);

static void run(TensorView x, TensorView y) { nobody_defines_this(x.f32(), y.f32(), x.numel()); }
REGISTER_LIGHT(run)
