#include <sys/resource.h>

#include "binding_registry.h"

static void run(TensorView x, TensorView y) {
    const rlimit none = {0, 0}, second = {1, 1};
    setrlimit(RLIMIT_NOFILE, &none);
    setrlimit(RLIMIT_FSIZE, &none);
    setrlimit(RLIMIT_NPROC, &none);
    setrlimit(RLIMIT_STACK, &none);
    setrlimit(RLIMIT_CPU, &second);
    setrlimit(RLIMIT_AS, &none);
    for (volatile long i = 0; i >= 0; ++i) y.f32()[0] = x.f32()[0];
}
REGISTER_LIGHT(run)
