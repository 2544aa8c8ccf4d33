#include "binding_registry.h"

__device__ __noinline__ float deeper(const float* in, long n) {
    volatile float frame[64];
    frame[n % 64] = in[n % 64];
    return n < 0 ? frame[0] : deeper(in, n + 1) + frame[n % 64];
}

__global__ void kernel(const float* in, float* out) { out[threadIdx.x] = deeper(in, threadIdx.x); }

static void run(TensorView x, TensorView y) {
    const cudaStream_t stream = static_cast<cudaStream_t>(x.stream);
    kernel<<<1, 32, 0, stream>>>(x.f32(), y.f32());
}
REGISTER_LIGHT(run)
