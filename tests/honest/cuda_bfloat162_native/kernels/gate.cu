#include <cuda_bf16.h>

#include "binding_registry.h"

__global__ void gate_kernel(const __nv_bfloat162* in, __nv_bfloat162* out, long pairs) {
    const long i = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x;
    if (i >= pairs) return;
    const __nv_bfloat162 zero = __float2bfloat162_rn(0.0f), one = __float2bfloat162_rn(1.0f);
    const __nv_bfloat162 v = in[i];
    const __nv_bfloat162 t = __hadd2(__hmul2(v, __float2bfloat162_rn(0.25f)), __float2bfloat162_rn(0.5f));
    out[i] = __hmul2(v, __hmin2(__hmax2(t, zero), one));
}

static void gate(TensorView x, TensorView y) {
    if (x.dtype() != LIGHT_BF16 || x.numel() % 2 != 0) light_fail("an even number of bfloat16 is wanted");
    const long pairs = x.numel() / 2;
    gate_kernel<<<static_cast<unsigned>((pairs + 255) / 256), 256, 0, static_cast<cudaStream_t>(x.stream)>>>(
        static_cast<const __nv_bfloat162*>(x.data()), static_cast<__nv_bfloat162*>(y.data()), pairs);
}
REGISTER_LIGHT(gate)
