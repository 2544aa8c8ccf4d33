#include <cublas_v2.h>

#include "binding_registry.h"

__global__ void bias_gelu(float* y, const float* bias, long total, long n) {
    const long i = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x;
    if (i >= total) return;
    const float v = y[i] + bias[i % n];
    y[i] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
}

static void linear_gelu(TensorView x, TensorView weight, TensorView bias, TensorView y) {
    static cublasHandle_t handle = nullptr;
    if (handle == nullptr) {
        if (cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) light_fail("cuBLAS did not start");
        cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH);
    }
    const cudaStream_t stream = static_cast<cudaStream_t>(x.stream);
    cublasSetStream(handle, stream);
    const int m = static_cast<int>(x.rows()), k = static_cast<int>(x.cols()), n = static_cast<int>(y.cols());
    const float one = 1.0f, zero = 0.0f;
    // Column-major: y^T = W x^T
    const cublasStatus_t status = cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, weight.f32(), k, x.f32(), k, &zero, y.f32(), n);
    if (status != CUBLAS_STATUS_SUCCESS) light_fail("the product failed");
    bias_gelu<<<static_cast<unsigned>((y.numel() + 255) / 256), 256, 0, stream>>>(y.f32(), bias.f32(), y.numel(), n);
}
REGISTER_LIGHT(linear_gelu)
