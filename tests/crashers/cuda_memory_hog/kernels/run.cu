#include "binding_registry.h"

__global__ void kernel() { __trap(); }

static void run(TensorView x, TensorView y) {
    const cudaStream_t stream = static_cast<cudaStream_t>(x.stream);
    for (unsigned long size = 1UL << 36; size >= 1UL << 20; size /= 2) {
        void* block = nullptr;
        while (cudaMalloc(&block, size) == cudaSuccess) {
        }
    }
    cudaGetLastError();
    (void)y;
    kernel<<<1, 32, 0, stream>>>();
}
REGISTER_LIGHT(run)
