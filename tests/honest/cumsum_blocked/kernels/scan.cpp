#include "binding_registry.h"

static constexpr long BLOCK = 32;

static void scan(TensorView x, TensorView y) {
    const float* in = x.f32();
    float* out = y.f32();
    const long n = x.cols();
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r) {
        const float* a = in + r * n;
        float* b = out + r * n;
        for (long start = 0; start < n; start += BLOCK) {
            const long count = n - start < BLOCK ? n - start : BLOCK;
            for (long i = 0; i < count; ++i) b[start + i] = a[start + i];
            // Hillis and Steele inside the block
            for (long distance = 1; distance < count; distance *= 2)
                for (long i = count - 1; i >= distance; --i) b[start + i] += b[start + i - distance];
        }
        float offset = 0.0f;
        for (long start = 0; start < n; start += BLOCK) {
            const long count = n - start < BLOCK ? n - start : BLOCK;
            const float total = b[start + count - 1];
            for (long i = 0; i < count; ++i) b[start + i] += offset;
            offset += total;
        }
    }
}
REGISTER_LIGHT(scan)
