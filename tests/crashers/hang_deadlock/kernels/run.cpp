#include <atomic>
#include <csignal>
#include <mutex>
#include <thread>

#include "binding_registry.h"

static void run(TensorView x, TensorView y) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    std::mutex one, other;
    std::atomic<int> held{0};
    auto take = [&](std::mutex& first, std::mutex& second) {
        std::lock_guard<std::mutex> a(first);
        ++held;
        while (held < 2) std::this_thread::yield();
        std::lock_guard<std::mutex> b(second);
    };
    std::thread thread([&] { take(other, one); });
    take(one, other);
    thread.join();
    y.f32()[0] = x.f32()[0];
}
REGISTER_LIGHT(run)
