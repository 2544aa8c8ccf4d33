#include "../loops.h"
#include "element.inl"

namespace core {
void run_rows(const float* in, float* out, long rows, long columns, Settings settings) {
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r) {
        for (long c = 0; c < columns; ++c) out[r * columns + c] = element(in[r * columns + c], settings);
    }
}
}  // namespace core
