#include "binding_registry.h"

__device__ unsigned next_tile = 0, finished = 0;

__global__ void __launch_bounds__(256) persistent(const float* __restrict__ in, float* __restrict__ out, long n) {
    __shared__ unsigned tile;
    for (;;) {
        if (threadIdx.x == 0) tile = atomicAdd(&next_tile, 1u);
        __syncthreads();
        const long start = static_cast<long>(tile) * 1024;
        __syncthreads();
        if (start >= n) break;
        for (long i = start + threadIdx.x; i < start + 1024 && i < n; i += 256)
            out[i] = 1.5f * fminf(fmaxf(tanhf(in[i] * 0.5f + 0.1f), -0.9f), 0.9f);
    }
    if (threadIdx.x == 0 && atomicAdd(&finished, 1u) == gridDim.x - 1) {
        next_tile = 0;
        finished = 0;
    }
}

static void run(TensorView x, TensorView y) {
    static int blocks = 0;
    if (blocks == 0) {
        int device = 0, processors = 0, resident = 0;
        cudaGetDevice(&device);
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, persistent, 256, 0);
        blocks = processors * resident;
    }
    persistent<<<blocks, 256, 0, static_cast<cudaStream_t>(x.stream)>>>(x.f32(), y.f32(), x.numel());
}
REGISTER_LIGHT(run)
