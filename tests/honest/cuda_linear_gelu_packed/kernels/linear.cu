#include "binding_registry.h"

constexpr int TILE = 32;

__global__ void transpose_kernel(const float* in, float* out, int rows, int columns) {
    __shared__ float tile[TILE][TILE + 1];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    if (x < columns && y < rows) tile[threadIdx.y][threadIdx.x] = in[y * columns + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    if (x < rows && y < columns) out[y * rows + x] = tile[threadIdx.x][threadIdx.y];
}

static void transpose(TensorView in, TensorView out) {
    const int rows = static_cast<int>(in.size(0)), columns = static_cast<int>(in.size(1));
    const dim3 grid((columns + TILE - 1) / TILE, (rows + TILE - 1) / TILE), block(TILE, TILE);
    transpose_kernel<<<grid, block, 0, static_cast<cudaStream_t>(in.stream)>>>(in.f32(), out.f32(), rows, columns);
}
REGISTER_LIGHT(transpose)

__global__ void product_kernel(const float* a, const float* b, const float* bias, float* c, int m, int k, int n) {
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float s = 0.0f;
    for (int p = 0; p < k; p += TILE) {
        left[threadIdx.y][threadIdx.x] = row < m && p + threadIdx.x < k ? a[row * k + p + threadIdx.x] : 0.0f;
        right[threadIdx.y][threadIdx.x] = column < n && p + threadIdx.y < k ? b[(p + threadIdx.y) * n + column] : 0.0f;
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < TILE; ++i) s = fmaf(left[threadIdx.y][i], right[i][threadIdx.x], s);
        __syncthreads();
    }
    if (row < m && column < n) {
        s += bias[column];
        c[row * n + column] = 0.5f * s * (1.0f + erff(s * 0.70710678f));
    }
}

static void product(TensorView x, TensorView transposed, TensorView bias, TensorView y) {
    const int m = static_cast<int>(x.rows()), k = static_cast<int>(x.cols()), n = static_cast<int>(y.cols());
    const dim3 grid((n + TILE - 1) / TILE, (m + TILE - 1) / TILE), block(TILE, TILE);
    product_kernel<<<grid, block, 0, static_cast<cudaStream_t>(x.stream)>>>(x.f32(), transposed.f32(), bias.f32(), y.f32(), m, k, n);
}
REGISTER_LIGHT(product)
