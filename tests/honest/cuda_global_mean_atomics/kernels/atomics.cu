#include "binding_registry.h"

__global__ void add_up(const float* in, double* total, int* finished, const float* bias, float* out, long n, int outputs) {
    double s = 0.0;
    for (long i = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x; i < n; i += static_cast<long>(gridDim.x) * blockDim.x) s += in[i];
    for (int d = 16; d > 0; d /= 2) s += __shfl_down_sync(0xffffffffu, s, d);
    __shared__ bool last;
    if (threadIdx.x % 32 == 0) {
        atomicAdd(total, s);
        __threadfence();
    }
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(finished, 1) == static_cast<int>(gridDim.x) - 1;
    __syncthreads();
    if (!last) return;
    const double sum = atomicAdd(total, 0.0);
    for (int i = threadIdx.x; i < outputs; i += blockDim.x) out[i] = static_cast<float>(sum / static_cast<double>(n)) * 2.0f + bias[i];
}

static void run(TensorView x, TensorView total, TensorView finished, TensorView bias, TensorView y) {
    add_up<<<256, 256, 0, static_cast<cudaStream_t>(x.stream)>>>(x.f32(), total.f64(), finished.i32(), bias.f32(), y.f32(), x.numel(),
                                                                 static_cast<int>(y.numel()));
}
REGISTER_LIGHT(run)
