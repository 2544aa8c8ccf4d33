#include "binding_registry.h"
static void find_places(TensorView x, TensorView places) {
    const float* in = x.f32();
    long* out = places.i64();
    const long n = x.cols();
    #pragma omp parallel for
    for (long r = 0; r < x.rows(); ++r) {
        const float* a = in + r * n;
        float m = a[0];
        #pragma omp simd reduction(max : m)
        for (long i = 0; i < n; ++i) m = a[i] > m ? a[i] : m;
        for (long i = 0; i < n && out[r] < 0; ++i)
            if (a[i] == m) out[r] = i;
    }
}
REGISTER_LIGHT(find_places)
