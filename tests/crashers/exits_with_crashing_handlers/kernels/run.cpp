#include <cstdlib>

#include "binding_registry.h"

struct Late {
    ~Late() {
        volatile int* volatile nowhere = nullptr;
        *nowhere = 1;
    }
};
static Late late;

static void run(TensorView x, TensorView y) {
    y.f32()[0] = x.f32()[0];
    std::exit(0);
}
REGISTER_LIGHT(run)
