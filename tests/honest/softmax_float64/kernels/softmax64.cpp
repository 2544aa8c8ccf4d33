#include <vector>

#include "binding_registry.h"

static void softmax64(TensorView x, TensorView y) {
    const float* in = x.f32();
    float* out = y.f32();
    const long rows = x.rows(), n = x.cols();
    #pragma omp parallel
    {
        std::vector<double> e(static_cast<unsigned long>(n));  // a workspace per thread and call
        #pragma omp for
        for (long r = 0; r < rows; ++r) {
            double m = 0.0, s = 0.0;
            for (long i = 0; i < n; ++i) m = in[r * n + i] > m ? in[r * n + i] : m;
            #pragma omp simd reduction(+ : s)
            for (long i = 0; i < n; ++i) {
                e[i] = exp((in[r * n + i] > 0.0f ? in[r * n + i] : 0.0f) - m);
                s += e[i];
            }
            for (long i = 0; i < n; ++i) out[r * n + i] = static_cast<float>(e[i] / s);
        }
    }
}
REGISTER_LIGHT(softmax64)
