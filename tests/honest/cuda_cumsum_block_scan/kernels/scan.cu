#include "binding_registry.h"

__global__ void scan_kernel(const float* in, float* out, int n) {
    __shared__ float totals[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    float before = 0.0f;
    for (int start = 0; start < n; start += blockDim.x) {
        const int i = start + threadIdx.x;
        float v = i < n ? in[blockIdx.x * static_cast<long>(n) + i] : 0.0f;
        for (int d = 1; d < 32; d *= 2) {
            const float other = __shfl_up_sync(0xffffffffu, v, d);
            if (lane >= d) v += other;
        }
        if (lane == 31) totals[warp] = v;
        __syncthreads();
        float offset = before, all = before;
        for (int w = 0; w < warps; ++w) {
            if (w < warp) offset += totals[w];
            all += totals[w];
        }
        if (i < n) out[blockIdx.x * static_cast<long>(n) + i] = v + offset;
        before = all;
        __syncthreads();
    }
}

static void scan(TensorView x, TensorView y) {
    scan_kernel<<<static_cast<unsigned>(x.rows()), 256, 0, static_cast<cudaStream_t>(x.stream)>>>(x.f32(), y.f32(), static_cast<int>(x.cols()));
}
REGISTER_LIGHT(scan)
