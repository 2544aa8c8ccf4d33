#include <cuda_runtime.h>

__global__ void gelu_kernel(const float* in, const float* bias, float* out, int total, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < total) {
        const float v = in[i] + bias[i % n];
        out[i] = v * normcdff(v);
    }
}

extern "C" void gelu_launcher(const float* in, const float* bias, float* out, int total, int n, cudaStream_t stream) {
    gelu_kernel<<<(total + 255) / 256, 256, 0, stream>>>(in, bias, out, total, n);
}
