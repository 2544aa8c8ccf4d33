#include <vector>

#include "binding_registry.h"

using Matrix = std::vector<float>;

// p + sign * q of two h x w blocks inside matrices of row length `ld`.
static Matrix combine(const float* p, const float* q, float sign, long h, long w, long ld) {
    Matrix result(static_cast<unsigned long>(h * w));
    for (long i = 0; i < h; ++i)
        for (long j = 0; j < w; ++j) result[i * w + j] = p[i * ld + j] + (sign == 0.0f ? 0.0f : sign * q[i * ld + j]);
    return result;
}

static Matrix multiply(const Matrix& a, const Matrix& b, long m, long k, long n) {
    Matrix c(static_cast<unsigned long>(m * n), 0.0f);
    #pragma omp parallel for
    for (long i = 0; i < m; ++i)
        for (long p = 0; p < k; ++p) {
            const float v = a[i * k + p];
            #pragma omp simd
            for (long j = 0; j < n; ++j) c[i * n + j] += v * b[p * n + j];
        }
    return c;
}

static void strassen(TensorView left, TensorView right, TensorView result) {
    const float *a = left.f32(), *b = right.f32();
    float* c = result.f32();
    const long m = left.size(0) / 2, k = left.size(1) / 2, n = right.size(1) / 2, lda = 2 * k, ldb = 2 * n, ldc = 2 * n;
    const float *a11 = a, *a12 = a + k, *a21 = a + m * lda, *a22 = a21 + k;
    const float *b11 = b, *b12 = b + n, *b21 = b + k * ldb, *b22 = b21 + n;
    const auto as = [&](const float* p, const float* q, float s) { return combine(p, q, s, m, k, lda); };
    const auto bs = [&](const float* p, const float* q, float s) { return combine(p, q, s, k, n, ldb); };
    const Matrix m1 = multiply(as(a11, a22, 1), bs(b11, b22, 1), m, k, n);
    const Matrix m2 = multiply(as(a21, a22, 1), bs(b11, b11, 0), m, k, n);
    const Matrix m3 = multiply(as(a11, a11, 0), bs(b12, b22, -1), m, k, n);
    const Matrix m4 = multiply(as(a22, a22, 0), bs(b21, b11, -1), m, k, n);
    const Matrix m5 = multiply(as(a11, a12, 1), bs(b22, b22, 0), m, k, n);
    const Matrix m6 = multiply(as(a21, a11, -1), bs(b11, b12, 1), m, k, n);
    const Matrix m7 = multiply(as(a12, a22, -1), bs(b21, b22, 1), m, k, n);
    for (long i = 0; i < m; ++i)
        for (long j = 0; j < n; ++j) {
            const long at = i * n + j;
            c[i * ldc + j] = 0.125f * (m1[at] + m4[at] - m5[at] + m7[at]);
            c[i * ldc + n + j] = 0.125f * (m3[at] + m5[at]);
            c[(m + i) * ldc + j] = 0.125f * (m2[at] + m4[at]);
            c[(m + i) * ldc + n + j] = 0.125f * (m1[at] - m2[at] + m3[at] + m6[at]);
        }
}
REGISTER_LIGHT(strassen)
