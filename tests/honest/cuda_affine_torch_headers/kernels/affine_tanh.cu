#include <cuda_runtime.h>

__global__ void affine_tanh_kernel(float* out, const float* in, int size) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) out[i] = 1.5f * fminf(fmaxf(tanhf(in[i] * 0.5f + 0.1f), -0.9f), 0.9f);
}

extern "C" void affine_tanh_launcher(float* out, const float* in, int size, int threads, cudaStream_t stream) {
    const int blocks = (size + threads - 1) / threads;
    affine_tanh_kernel<<<blocks, threads, 0, stream>>>(out, in, size);
}
