#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include "binding_registry.h"

static void run(TensorView x, TensorView y) {
    static char block[1 << 20];
    std::memset(block, 'x', sizeof block);
    (void)x;
    (void)y;
    for (int i = 0; i < 2048; ++i) {
        if (write(1, block, sizeof block) < 0 && write(2, block, 4096) < 0 && i > 1024) break;
        std::fwrite(block, 1, sizeof block, stderr);
    }
    std::abort();
}
REGISTER_LIGHT(run)
