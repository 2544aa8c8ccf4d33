#include "binding_registry.h"

__global__ void block_row(const float* in, float* out, int n) {
    __shared__ float part[32];
    const float* a = in + blockIdx.x * static_cast<long>(n);
    float* b = out + blockIdx.x * static_cast<long>(n);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    float m = 0.0f, s = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) m = fmaxf(m, a[i]);
    for (int d = 16; d > 0; d /= 2) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, d));
    if (lane == 0) part[warp] = m;
    __syncthreads();
    for (int w = 0; w < warps; ++w) m = fmaxf(m, part[w]);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += b[i] = expf(fmaxf(a[i], 0.0f) - m);
    for (int d = 16; d > 0; d /= 2) s += __shfl_xor_sync(0xffffffffu, s, d);
    if (lane == 0) part[warp] = s;
    __syncthreads();
    s = 0.0f;
    for (int w = 0; w < warps; ++w) s += part[w];
    for (int i = threadIdx.x; i < n; i += blockDim.x) b[i] /= s;
}

static void relu_softmax(TensorView x, TensorView y) {
    static cudaStream_t side = nullptr;
    static cudaEvent_t forked, joined;
    if (side == nullptr) {
        cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
        cudaEventCreateWithFlags(&forked, cudaEventDisableTiming);
        cudaEventCreateWithFlags(&joined, cudaEventDisableTiming);
    }
    const cudaStream_t stream = static_cast<cudaStream_t>(x.stream);
    const int n = static_cast<int>(x.cols());
    const long rows = x.rows(), half = rows / 2;
    cudaEventRecord(forked, stream);
    cudaStreamWaitEvent(side, forked, 0);
    block_row<<<static_cast<unsigned>(half), 128, 0, side>>>(x.f32(), y.f32(), n);
    block_row<<<static_cast<unsigned>(rows - half), 128, 0, stream>>>(x.f32() + half * n, y.f32() + half * n, n);
    cudaEventRecord(joined, side);
    cudaStreamWaitEvent(stream, joined, 0);
    if (cudaGetLastError() != cudaSuccess) light_fail("a launch failed");
}
REGISTER_LIGHT(relu_softmax)
