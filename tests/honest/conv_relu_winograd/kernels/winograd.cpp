#include "binding_registry.h"

// u[16][co][ci] = G g G^T
static void transform_weights(TensorView weight, TensorView transformed) {
    const float* g = weight.f32();
    float* u = transformed.f32();
    const long co = weight.size(0), ci = weight.size(1);
    static const float G[4][3] = {{1, 0, 0}, {0.5f, 0.5f, 0.5f}, {0.5f, -0.5f, 0.5f}, {0, 0, 1}};
    for (long f = 0; f < co * ci; ++f)
        for (int a = 0; a < 4; ++a)
            for (int b = 0; b < 4; ++b) {
                float s = 0.0f;
                for (int i = 0; i < 3; ++i)
                    for (int j = 0; j < 3; ++j) s += G[a][i] * g[f * 9 + i * 3 + j] * G[b][j];
                u[(a * 4 + b) * co * ci + f] = s;
            }
}
REGISTER_LIGHT(transform_weights)

static void input_tile(const float* in, long h, long w, long y0, long x0, float* v) {
    float d[4][4], t[4][4];
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) {
            const long y = y0 + i, x = x0 + j;
            d[i][j] = y >= 0 && y < h && x >= 0 && x < w ? in[y * w + x] : 0.0f;
        }
    for (int j = 0; j < 4; ++j) {
        t[0][j] = d[0][j] - d[2][j];
        t[1][j] = d[1][j] + d[2][j];
        t[2][j] = d[2][j] - d[1][j];
        t[3][j] = d[1][j] - d[3][j];
    }
    for (int i = 0; i < 4; ++i) {
        v[i * 4 + 0] = t[i][0] - t[i][2];
        v[i * 4 + 1] = t[i][1] + t[i][2];
        v[i * 4 + 2] = t[i][2] - t[i][1];
        v[i * 4 + 3] = t[i][1] - t[i][3];
    }
}

static void winograd(TensorView x, TensorView transformed, TensorView bias, TensorView result) {
    const float *in = x.f32(), *u = transformed.f32(), *b = bias.f32();
    float* out = result.f32();
    const long images = x.size(0), ci = x.size(1), h = x.size(2), w = x.size(3), co = result.size(1);
    if (ci > 64 || h % 2 != 0 || w % 2 != 0) light_fail("at most 64 channels and even sizes");
    #pragma omp parallel for collapse(2)
    for (long n = 0; n < images; ++n)
        for (long ty = 0; ty < h / 2; ++ty)
            for (long tx = 0; tx < w / 2; ++tx) {
                float v[64][16];
                for (long c = 0; c < ci; ++c) input_tile(in + (n * ci + c) * h * w, h, w, 2 * ty - 1, 2 * tx - 1, v[c]);
                for (long o = 0; o < co; ++o) {
                    float m[16] = {};
                    for (long c = 0; c < ci; ++c)
                        for (int e = 0; e < 16; ++e) m[e] += u[(e * co + o) * ci + c] * v[c][e];
                    float s[2][4];
                    for (int j = 0; j < 4; ++j) {
                        s[0][j] = m[j] + m[4 + j] + m[8 + j];
                        s[1][j] = m[4 + j] - m[8 + j] - m[12 + j];
                    }
                    for (int i = 0; i < 2; ++i) {
                        float* place = out + ((n * co + o) * h + 2 * ty + i) * w + 2 * tx;
                        place[0] = fmaxf(s[i][0] + s[i][1] + s[i][2] + b[o], 0.0f);
                        place[1] = fmaxf(s[i][1] - s[i][2] - s[i][3] + b[o], 0.0f);
                    }
                }
            }
}
REGISTER_LIGHT(winograd)
