#include <cuda_fp16.h>

#include "binding_registry.h"

__global__ void pairs(const __half2* in, const __half2* gain, __half2* out, long count, long width) {
    const long i = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x;
    if (i >= count) return;
    const float2 v = __half22float2(in[i]), g = __half22float2(gain[i % width]);
    out[i] = __floats2half2_rn(fmaxf(v.x, 0.0f) * g.x - 0.25f * v.x, fmaxf(v.y, 0.0f) * g.y - 0.25f * v.y);
}

static void run(TensorView x, TensorView gain, TensorView y) {
    if (x.dtype() != LIGHT_F16 || x.cols() % 2 != 0) light_fail("float16 and an even width are wanted");
    const long count = x.numel() / 2;
    pairs<<<static_cast<unsigned>((count + 255) / 256), 256, 0, static_cast<cudaStream_t>(x.stream)>>>(
        static_cast<const __half2*>(x.data()), static_cast<const __half2*>(gain.data()), static_cast<__half2*>(y.data()), count, x.cols() / 2);
}
REGISTER_LIGHT(run)
