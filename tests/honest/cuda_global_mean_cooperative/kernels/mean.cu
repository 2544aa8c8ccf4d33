#include <cooperative_groups.h>

#include "binding_registry.h"

namespace cg = cooperative_groups;

__device__ double block_sum(double v) {
    __shared__ double part[32];
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.0;
    if (threadIdx.x < 32)
        for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);
    __syncthreads();
    return v;
}

__global__ void mean_kernel(const float* in, double* workspace, const float* bias, float* out, long n, int outputs) {
    double s = 0.0;
    for (long i = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x; i < n; i += static_cast<long>(gridDim.x) * blockDim.x) s += in[i];
    s = block_sum(s);
    if (threadIdx.x == 0) workspace[blockIdx.x] = s;
    cg::this_grid().sync();
    if (blockIdx.x != 0) return;
    s = 0.0;
    for (int i = threadIdx.x; i < gridDim.x; i += blockDim.x) s += workspace[i];
    s = block_sum(s);
    __shared__ float mean;
    if (threadIdx.x == 0) mean = static_cast<float>(s / static_cast<double>(n));
    __syncthreads();
    for (int i = threadIdx.x; i < outputs; i += blockDim.x) out[i] = mean * 2.0f + bias[i];
}

static void mean_plus_bias(TensorView x, TensorView workspace, TensorView bias, TensorView y) {
    int device = 0, processors = 0, resident = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, mean_kernel, 256, 0);
    long blocks = static_cast<long>(processors) * resident;
    if (blocks > workspace.numel()) blocks = workspace.numel();
    const float *in = x.f32(), *b = bias.f32();
    double* space = workspace.f64();
    float* out = y.f32();
    long n = x.numel();
    int outputs = static_cast<int>(y.numel());
    void* arguments[] = {&in, &space, &b, &out, &n, &outputs};
    const dim3 grid(static_cast<unsigned>(blocks)), block(256);
    const cudaStream_t stream = static_cast<cudaStream_t>(x.stream);
    if (cudaLaunchCooperativeKernel(reinterpret_cast<void*>(mean_kernel), grid, block, arguments, 0, stream) != cudaSuccess)
        light_fail("the cooperative launch failed");
}
REGISTER_LIGHT(mean_plus_bias)
