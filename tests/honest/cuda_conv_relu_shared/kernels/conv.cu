#include "binding_registry.h"

constexpr int SIDE = 16, CHANNELS = 8;

__constant__ float weights[CHANNELS * CHANNELS * 9 + CHANNELS];

__global__ void conv_kernel(const float* in, float* out, int h, int w) {
    __shared__ float tile[CHANNELS][SIDE + 2][SIDE + 2];
    const int image = blockIdx.z, x0 = blockIdx.x * SIDE, y0 = blockIdx.y * SIDE;
    const int thread = threadIdx.y * SIDE + threadIdx.x;
    for (int t = thread; t < CHANNELS * (SIDE + 2) * (SIDE + 2); t += SIDE * SIDE) {
        const int c = t / ((SIDE + 2) * (SIDE + 2)), y = t / (SIDE + 2) % (SIDE + 2), x = t % (SIDE + 2);
        const int sy = y0 + y - 1, sx = x0 + x - 1;
        tile[c][y][x] = sy >= 0 && sy < h && sx >= 0 && sx < w ? in[((image * CHANNELS + c) * h + sy) * w + sx] : 0.0f;
    }
    __syncthreads();
    const int y = y0 + threadIdx.y, x = x0 + threadIdx.x;
    if (y >= h || x >= w) return;
    for (int o = 0; o < CHANNELS; ++o) {
        float s = weights[CHANNELS * CHANNELS * 9 + o];
        for (int c = 0; c < CHANNELS; ++c)
            #pragma unroll
            for (int k = 0; k < 9; ++k) s = fmaf(weights[(o * CHANNELS + c) * 9 + k], tile[c][threadIdx.y + k / 3][threadIdx.x + k % 3], s);
        out[((image * CHANNELS + o) * h + y) * w + x] = fmaxf(s, 0.0f);
    }
}

// Constant memory holds one draw of weights; it is filled anew in each call, on the stream, so that no instance sees another's.
static void conv_relu(TensorView x, TensorView weight, TensorView bias, TensorView y) {
    if (x.size(1) != CHANNELS || y.size(1) != CHANNELS) light_fail("eight channels are wanted");
    const cudaStream_t stream = static_cast<cudaStream_t>(x.stream);
    const unsigned long bytes = CHANNELS * CHANNELS * 9 * sizeof(float);
    cudaMemcpyToSymbolAsync(weights, weight.f32(), bytes, 0, cudaMemcpyDeviceToDevice, stream);
    cudaMemcpyToSymbolAsync(weights, bias.f32(), CHANNELS * sizeof(float), bytes, cudaMemcpyDeviceToDevice, stream);
    const int h = static_cast<int>(x.size(2)), w = static_cast<int>(x.size(3));
    const dim3 grid((w + SIDE - 1) / SIDE, (h + SIDE - 1) / SIDE, static_cast<unsigned>(x.size(0))), block(SIDE, SIDE);
    conv_kernel<<<grid, block, 0, stream>>>(x.f32(), y.f32(), h, w);
}
REGISTER_LIGHT(conv_relu)
