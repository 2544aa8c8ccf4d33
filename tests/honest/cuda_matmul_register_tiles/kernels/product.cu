#include "binding_registry.h"

constexpr int SIDE = 64, DEPTH = 16;

__global__ void __launch_bounds__(256) product_kernel(const float* a, const float* b, float* c, int m, int k, int n, int share, float scale) {
    __shared__ float left[DEPTH][SIDE], right[DEPTH][SIDE];
    const int row = blockIdx.y * SIDE, column = blockIdx.x * SIDE, from = blockIdx.z * share;
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    float sum[4][4] = {};
    for (int p = from; p < from + share; p += DEPTH) {
        for (int t = threadIdx.x; t < DEPTH * SIDE; t += 256) {
            left[t % DEPTH][t / DEPTH] = a[(row + t / DEPTH) * k + p + t % DEPTH];
            right[t / SIDE][t % SIDE] = b[(p + t / SIDE) * n + column + t % SIDE];
        }
        __syncthreads();
        #pragma unroll
        for (int d = 0; d < DEPTH; ++d)
            #pragma unroll
            for (int i = 0; i < 4; ++i)
                #pragma unroll
                for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(left[d][ty * 4 + i], right[d][tx * 4 + j], sum[i][j]);
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) atomicAdd(&c[(row + ty * 4 + i) * n + column + tx * 4 + j], sum[i][j] * scale);
}

static void product(TensorView a, TensorView b, TensorView c, float scale, int splits) {
    const int m = static_cast<int>(a.size(0)), k = static_cast<int>(a.size(1)), n = static_cast<int>(b.size(1));
    if (m % SIDE != 0 || n % SIDE != 0 || k % (splits * DEPTH) != 0) light_fail("the sizes must be multiples of the tile");
    const dim3 grid(n / SIDE, m / SIDE, splits);
    product_kernel<<<grid, 256, 0, static_cast<cudaStream_t>(a.stream)>>>(a.f32(), b.f32(), c.f32(), m, k, n, k / splits, scale);
}
REGISTER_LIGHT(product)
