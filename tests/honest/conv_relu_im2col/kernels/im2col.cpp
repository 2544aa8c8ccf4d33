#include <vector>

#include "binding_registry.h"

static std::vector<float> columns;  // [channels * 9, height * width] of the image at hand

static void im2col(TensorView image, long padding) {
    const float* in = image.f32();
    const long c = image.size(0), h = image.size(1), w = image.size(2), oh = h + 2 * padding - 2, ow = w + 2 * padding - 2;
    columns.resize(static_cast<unsigned long>(c * 9 * oh * ow));
    float* out = columns.data();
    #pragma omp parallel for
    for (long t = 0; t < c * 9; ++t) {
        const long channel = t / 9, dy = t % 9 / 3 - padding, dx = t % 3 - padding;
        for (long y = 0; y < oh; ++y)
            for (long x = 0; x < ow; ++x) {
                const long sy = y + dy, sx = x + dx;
                const bool inside = sy >= 0 && sy < h && sx >= 0 && sx < w;
                out[(t * oh + y) * ow + x] = inside ? in[(channel * h + sy) * w + sx] : 0.0f;
            }
    }
}
REGISTER_LIGHT(im2col)

static void gemm_relu(TensorView weight, TensorView bias, TensorView result) {
    const float *w = weight.f32(), *b = bias.f32(), *col = columns.data();
    float* out = result.f32();
    const long m = weight.size(0), k = weight.size(1), n = result.numel() / m;
    if (static_cast<long>(columns.size()) != k * n) light_fail("im2col has not run");
    #pragma omp parallel for
    for (long i = 0; i < m; ++i) {
        float* line = out + i * n;
        for (long j = 0; j < n; ++j) line[j] = b[i];
        for (long p = 0; p < k; ++p)
            #pragma omp simd
            for (long j = 0; j < n; ++j) line[j] += w[i * k + p] * col[p * n + j];
        for (long j = 0; j < n; ++j) line[j] = line[j] > 0.0f ? line[j] : 0.0f;
    }
}
REGISTER_LIGHT(gemm_relu)
