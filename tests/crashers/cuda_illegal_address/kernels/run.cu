#include "binding_registry.h"

__global__ void kernel(const float* in, float* out) { out[(1L << 40) + threadIdx.x] = in[threadIdx.x]; }

static void run(TensorView x, TensorView y) {
    const cudaStream_t stream = static_cast<cudaStream_t>(x.stream);
    kernel<<<1, 32, 0, stream>>>(x.f32(), y.f32());
}
REGISTER_LIGHT(run)
