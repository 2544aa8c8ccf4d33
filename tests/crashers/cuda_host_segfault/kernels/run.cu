#include "binding_registry.h"

__global__ void kernel(const float* in, float* out, long n) {
    const long i = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = 1.5f * fminf(fmaxf(tanhf(in[i] * 0.5f + 0.1f), -0.9f), 0.9f);
}

static void run(TensorView x, TensorView y) {
    const cudaStream_t stream = static_cast<cudaStream_t>(x.stream);
    kernel<<<(x.numel() + 255) / 256, 256, 0, stream>>>(x.f32(), y.f32(), x.numel());
    volatile float* volatile nowhere = nullptr;
    nowhere[0] = 1.0f;
    kernel<<<(x.numel() + 255) / 256, 256, 0, stream>>>(x.f32(), y.f32(), x.numel());
}
REGISTER_LIGHT(run)
