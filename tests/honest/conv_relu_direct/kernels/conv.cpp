#include "binding_registry.h"

static void conv_relu(TensorView x, TensorView weight, TensorView bias, TensorView y) {
    const float *in = x.f32(), *w = weight.f32(), *b = bias.f32();
    float* out = y.f32();
    const long images = x.size(0), ci = x.size(1), h = x.size(2), wd = x.size(3), co = y.size(1);
    #pragma omp parallel for collapse(2)
    for (long i = 0; i < images; ++i)
        for (long o = 0; o < co; ++o) {
            float* plane = out + (i * co + o) * h * wd;
            for (long p = 0; p < h * wd; ++p) plane[p] = b[o];
            for (long c = 0; c < ci; ++c)
                for (long ky = -1; ky <= 1; ++ky)
                    for (long kx = -1; kx <= 1; ++kx) {
                        const float factor = w[((o * ci + c) * 3 + ky + 1) * 3 + kx + 1];
                        const float* source = in + (i * ci + c) * h * wd;
                        const long left = kx < 0 ? 1 : 0, right = kx > 0 ? wd - 1 : wd;
                        for (long r = ky < 0 ? 1 : 0; r < (ky > 0 ? h - 1 : h); ++r)
                            for (long q = left; q < right; ++q) plane[r * wd + q] += factor * source[(r + ky) * wd + q + kx];
                    }
            for (long p = 0; p < h * wd; ++p) plane[p] = plane[p] > 0.0f ? plane[p] : 0.0f;
        }
}
REGISTER_LIGHT(conv_relu)
