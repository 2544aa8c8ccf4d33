#include "binding_registry.h"
static void running_sums(TensorView tokens, TensorView table, TensorView y) {
    const long* indices = tokens.i64();
    const float* rows = table.f32();
    float* out = y.f32();
    const long length = tokens.cols(), width = table.cols();
    #pragma omp parallel for
    for (long sequence = 0; sequence < tokens.rows(); ++sequence) {
        float* to = out + sequence * length * width;
        for (long step = 0; step < length; ++step, to += width) {
            const float* row = rows + indices[sequence * length + step] * width;
            for (long i = 0; i < width; ++i) to[i] = step ? to[i - width] + row[i] : row[i];
        }
    }
}
REGISTER_LIGHT(running_sums)
