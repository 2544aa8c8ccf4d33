#include "binding_registry.h"

__global__ void parts(const float* in, float* scratch, int n, int pieces) {
    const int piece = blockIdx.y, lane = threadIdx.x;
    const int share = (n + pieces - 1) / pieces;
    float s = 0.0f;
    for (int i = piece * share + lane; i < min(n, (piece + 1) * share); i += 32) s += in[blockIdx.x * static_cast<long>(n) + i];
    for (int d = 16; d > 0; d /= 2) s += __shfl_down_sync(0xffffffffu, s, d);
    if (lane == 0) scratch[blockIdx.x * pieces + piece] = s;
}

__global__ void finish(const float* scratch, float* out, long rows, int pieces) {
    const long r = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x;
    if (r >= rows) return;
    float s = 0.0f;
    for (int p = 0; p < pieces; ++p) s += scratch[r * pieces + p];
    out[r] = s;
}

static void row_sum(TensorView x, TensorView y) {
    constexpr int PIECES = 4;
    const cudaStream_t stream = static_cast<cudaStream_t>(x.stream);
    const long rows = x.rows();
    void* scratch = nullptr;
    if (cudaMallocAsync(&scratch, static_cast<unsigned long>(rows) * PIECES * sizeof(float), stream) != cudaSuccess) light_fail("no scratch");
    const dim3 grid(static_cast<unsigned>(rows), PIECES);
    parts<<<grid, 32, 0, stream>>>(x.f32(), static_cast<float*>(scratch), static_cast<int>(x.cols()), PIECES);
    finish<<<static_cast<unsigned>((rows + 127) / 128), 128, 0, stream>>>(static_cast<float*>(scratch), y.f32(), rows, PIECES);
    cudaFreeAsync(scratch, stream);
}
REGISTER_LIGHT(row_sum)
