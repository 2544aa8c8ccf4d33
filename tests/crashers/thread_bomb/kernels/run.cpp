#include <chrono>
#include <thread>
#include <vector>

#include "binding_registry.h"

static void run(TensorView x, TensorView y) {
    (void)x;
    (void)y;
    std::vector<std::thread> threads;
    for (;;) threads.emplace_back([] { std::this_thread::sleep_for(std::chrono::hours(1)); });
}
REGISTER_LIGHT(run)
