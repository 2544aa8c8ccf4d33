#include "binding_registry.h"

__global__ void argmax_kernel(const float* in, long* out, int n) {
    __shared__ unsigned long long best;
    if (threadIdx.x == 0) best = 0;
    __syncthreads();
    unsigned long long key = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const float v = in[blockIdx.x * static_cast<long>(n) + i] + 0.0f;  // -0 becomes +0
        unsigned bits = __float_as_uint(v);
        bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
        const unsigned long long mine = static_cast<unsigned long long>(bits) << 32 | (0xffffffffu - static_cast<unsigned>(i));
        if (mine > key) key = mine;
    }
    atomicMax(&best, key);
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = 0xffffffffu - static_cast<unsigned>(best & 0xffffffffu);
}

static void argmax(TensorView x, TensorView y) {
    argmax_kernel<<<static_cast<unsigned>(x.rows()), 128, 0, static_cast<cudaStream_t>(x.stream)>>>(x.f32(), y.i64(), static_cast<int>(x.cols()));
}
REGISTER_LIGHT(argmax)
