#include "binding_registry.h"

static void run(TensorView x, TensorView y) {
    volatile long zero = x.numel() - x.rows() * x.cols();
    y.f32()[0] = static_cast<float>(x.numel() / zero);
}
REGISTER_LIGHT(run)
