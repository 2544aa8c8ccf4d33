#include <vector>

#include "binding_registry.h"

static constexpr long ROWS = 4, COLUMNS = 16;

static void product(TensorView a, TensorView b, TensorView c, float scale) {
    const float *x = a.f32(), *w = b.f32();
    float* out = c.f32();
    const long m = a.size(0), k = a.size(1), n = b.size(1);
    if (m % ROWS != 0 || n % COLUMNS != 0) light_fail("the sizes must be multiples of the tile");
    #pragma omp parallel
    {
        std::vector<float> panel(static_cast<unsigned long>(k * COLUMNS));
        #pragma omp for
        for (long j = 0; j < n; j += COLUMNS) {
            for (long p = 0; p < k; ++p)
                for (long q = 0; q < COLUMNS; ++q) panel[p * COLUMNS + q] = w[p * n + j + q];
            for (long i = 0; i < m; i += ROWS) {
                float tile[ROWS][COLUMNS] = {};
                for (long p = 0; p < k; ++p)
                    for (long r = 0; r < ROWS; ++r) {
                        const float v = x[(i + r) * k + p];
                        #pragma omp simd
                        for (long q = 0; q < COLUMNS; ++q) tile[r][q] += v * panel[p * COLUMNS + q];
                    }
                for (long r = 0; r < ROWS; ++r)
                    for (long q = 0; q < COLUMNS; ++q) out[(i + r) * n + j + q] = tile[r][q] * scale;
            }
        }
    }
}
REGISTER_LIGHT(product)
