#include "binding_registry.h"
#include "../core/loops.h"

static void apply(TensorView x, TensorView y, float scale, float shift, float bound, float gain) {
    core::run_rows(x.f32(), y.f32(), x.rows(), x.cols(), core::Settings{scale, shift, bound, gain});
}
REGISTER_LIGHT(apply)
