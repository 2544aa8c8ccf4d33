#include "binding_registry.h"

__global__ void kernel(const float* in, float* out) { out[threadIdx.x] = in[threadIdx.x]; }

static void run(TensorView x, TensorView y) {
    const cudaStream_t stream = static_cast<cudaStream_t>(x.stream);
    float* host = new float[32]();
    kernel<<<1, 32, 0, stream>>>(host, y.f32());
}
REGISTER_LIGHT(run)
