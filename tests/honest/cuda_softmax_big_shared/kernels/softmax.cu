#include "binding_registry.h"

constexpr int ROWS = 32;

// One block holds ROWS rows; warp w works on rows w, w + 8, ...
__global__ void shared_rows(const float* in, float* out, long rows, int n) {
    extern __shared__ float held[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const long first = blockIdx.x * static_cast<long>(ROWS);
    const long count = min(static_cast<long>(ROWS), rows - first) * n;
    for (long i = threadIdx.x; i < count; i += blockDim.x) held[i] = fmaxf(in[first * n + i], 0.0f);
    __syncthreads();
    for (int r = warp; r < ROWS && first + r < rows; r += 8) {
        float m = 0.0f, s = 0.0f;
        for (int i = lane; i < n; i += 32) m = fmaxf(m, held[r * n + i]);
        for (int d = 16; d > 0; d /= 2) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, d));
        for (int i = lane; i < n; i += 32) s += held[r * n + i] = expf(held[r * n + i] - m);
        for (int d = 16; d > 0; d /= 2) s += __shfl_xor_sync(0xffffffffu, s, d);
        for (int i = lane; i < n; i += 32) held[r * n + i] /= s;
    }
    __syncthreads();
    for (long i = threadIdx.x; i < count; i += blockDim.x) out[first * n + i] = held[i];
}

static void relu_softmax(TensorView x, TensorView y) {
    const int n = static_cast<int>(x.cols()), bytes = ROWS * n * static_cast<int>(sizeof(float));
    static int allowed = 0;
    if (allowed < bytes) {
        if (cudaFuncSetAttribute(shared_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) != cudaSuccess)
            light_fail("so much shared memory is not to be had");
        allowed = bytes;
    }
    const unsigned blocks = static_cast<unsigned>((x.rows() + ROWS - 1) / ROWS);
    shared_rows<<<blocks, 256, bytes, static_cast<cudaStream_t>(x.stream)>>>(x.f32(), y.f32(), x.rows(), n);
    if (cudaGetLastError() != cudaSuccess) light_fail("the launch failed");
}
REGISTER_LIGHT(relu_softmax)
