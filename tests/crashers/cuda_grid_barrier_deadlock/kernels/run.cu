#include "binding_registry.h"

__device__ unsigned arrived = 0;

__global__ void kernel(float* out) {
    if (threadIdx.x == 0) {
        atomicAdd(&arrived, 1u);
        while (*static_cast<volatile unsigned*>(&arrived) < gridDim.x) {
        }
    }
    __syncthreads();
    out[0] = 1.0f;
}

static void run(TensorView x, TensorView y) {
    const cudaStream_t stream = static_cast<cudaStream_t>(x.stream);
    kernel<<<1000000, 1024, 0, stream>>>(y.f32());
}
REGISTER_LIGHT(run)
