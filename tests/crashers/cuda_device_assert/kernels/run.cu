#include "binding_registry.h"

#include <cassert>

__global__ void kernel(const float* in, float* out, long n) {
    const long i = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x;
    assert(i < n / 2);
    out[i] = in[i];
}

static void run(TensorView x, TensorView y) {
    const cudaStream_t stream = static_cast<cudaStream_t>(x.stream);
    kernel<<<x.numel() / 256, 256, 0, stream>>>(x.f32(), y.f32(), x.numel());
}
REGISTER_LIGHT(run)
