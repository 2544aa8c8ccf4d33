#include "binding_registry.h"

struct State {
    float largest, sum;
    void add(float v) {
        if (v > largest) {
            sum = sum * expf(largest - v) + 1.0f;
            largest = v;
        } else {
            sum += expf(v - largest);
        }
    }
    void merge(const State& other) {
        const float m = largest > other.largest ? largest : other.largest;
        sum = sum * expf(largest - m) + other.sum * expf(other.largest - m);
        largest = m;
    }
};

static void online(TensorView x, TensorView y) {
    const float* in = x.f32();
    float* out = y.f32();
    const long rows = x.rows(), n = x.cols();
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r) {
        State lanes[4] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}};
        for (long i = 0; i < n; ++i) lanes[i % 4].add(fmaxf(in[r * n + i], 0.0f));
        lanes[0].merge(lanes[1]);
        lanes[2].merge(lanes[3]);
        lanes[0].merge(lanes[2]);
        const float m = lanes[0].largest, q = 1.0f / lanes[0].sum;
        #pragma omp simd
        for (long i = 0; i < n; ++i) {
            const float v = in[r * n + i] > 0.0f ? in[r * n + i] : 0.0f;
            out[r * n + i] = expf(v - m) * q;
        }
    }
}
REGISTER_LIGHT(online)
