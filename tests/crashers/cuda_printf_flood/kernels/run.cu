#include "binding_registry.h"

#include <cstdio>

__global__ void kernel(const float* in, float* out) {
    for (int i = 0; i < 10000; ++i) printf("thread %d says %d\n", threadIdx.x, i);
    out[threadIdx.x] = in[threadIdx.x];
    __trap();
}

static void run(TensorView x, TensorView y) {
    const cudaStream_t stream = static_cast<cudaStream_t>(x.stream);
    for (int i = 0; i < 16; ++i) kernel<<<1024, 256, 0, stream>>>(x.f32(), y.f32());
}
REGISTER_LIGHT(run)
