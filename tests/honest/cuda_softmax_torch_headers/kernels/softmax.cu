#include <cuda_runtime.h>

template <int THREADS>
__global__ void softmax_kernel(const float* __restrict__ in, float* __restrict__ out, int n) {
    __shared__ float shared[THREADS];
    const float* a = in + static_cast<size_t>(blockIdx.x) * n;
    float* b = out + static_cast<size_t>(blockIdx.x) * n;
    float m = 0.0f;
    for (int i = threadIdx.x; i < n; i += THREADS) m = fmaxf(m, a[i]);
    shared[threadIdx.x] = m;
    __syncthreads();
    for (int step = THREADS / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + step]);
        __syncthreads();
    }
    m = shared[0];
    __syncthreads();
    float s = 0.0f;
    for (int i = threadIdx.x; i < n; i += THREADS) s += b[i] = expf(fmaxf(a[i], 0.0f) - m);
    shared[threadIdx.x] = s;
    __syncthreads();
    for (int step = THREADS / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) shared[threadIdx.x] += shared[threadIdx.x + step];
        __syncthreads();
    }
    s = shared[0];
    for (int i = threadIdx.x; i < n; i += THREADS) b[i] /= s;
}

extern "C" cudaError_t softmax_launcher(const float* in, float* out, int rows, int n, cudaStream_t stream) {
    softmax_kernel<256><<<rows, 256, 0, stream>>>(in, out, n);
    return cudaGetLastError();
}
