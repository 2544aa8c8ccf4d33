#include <atomic>
#include <thread>

#include "binding_registry.h"

static void add_share(const float* in, long n, std::atomic<double>& total) {
    double lanes[4] = {};
    long i = 0;
    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; ++j) lanes[j] += in[i + j];
    for (; i < n; ++i) lanes[0] += in[i];
    const double share = lanes[0] + lanes[1] + lanes[2] + lanes[3];
    double seen = total.load();
    while (!total.compare_exchange_weak(seen, seen + share)) {
    }
}

static void mean_plus_bias(TensorView x, TensorView bias, TensorView y) {
    const float* in = x.f32();
    const long n = x.numel(), half = n / 2;
    std::atomic<double> total{0.0};
    std::thread other(add_share, in + half, n - half, std::ref(total));
    add_share(in, half, total);
    other.join();
    const float mean = static_cast<float>(total.load() / static_cast<double>(n));
    for (long i = 0; i < y.numel(); ++i) y.f32()[i] = 2.0f * mean + bias.f32()[i];
}
REGISTER_LIGHT(mean_plus_bias)
