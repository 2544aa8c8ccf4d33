#include "binding_registry.h"

constexpr unsigned ALL = 0xffffffffu;

template <int PER_LANE>
__global__ void warp_rows(const float* __restrict__ in, float* __restrict__ out, long rows) {
    const long row = blockIdx.x * static_cast<long>(blockDim.y) + threadIdx.y;
    if (row >= rows) return;
    const float* a = in + row * PER_LANE * 32;
    float v[PER_LANE], m = 0.0f, s = 0.0f;
    #pragma unroll
    for (int i = 0; i < PER_LANE; ++i) m = fmaxf(m, v[i] = fmaxf(a[i * 32 + threadIdx.x], 0.0f));
    for (int lane = 16; lane > 0; lane /= 2) m = fmaxf(m, __shfl_xor_sync(ALL, m, lane));
    #pragma unroll
    for (int i = 0; i < PER_LANE; ++i) s += v[i] = expf(v[i] - m);
    for (int lane = 16; lane > 0; lane /= 2) s += __shfl_xor_sync(ALL, s, lane);
    #pragma unroll
    for (int i = 0; i < PER_LANE; ++i) out[row * PER_LANE * 32 + i * 32 + threadIdx.x] = v[i] / s;
}

static void relu_softmax(TensorView x, TensorView y) {
    if (x.cols() != 512) light_fail("rows of 512 are wanted");
    const dim3 block(32, 8);
    warp_rows<16><<<static_cast<unsigned>((x.rows() + 7) / 8), block, 0, static_cast<cudaStream_t>(x.stream)>>>(x.f32(), y.f32(), x.rows());
}
REGISTER_LIGHT(relu_softmax)
