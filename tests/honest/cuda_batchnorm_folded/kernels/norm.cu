#include "binding_registry.h"

__global__ void fold_kernel(const float* weight, const float* bias, const float* mean, const float* var, float* folded, int n, double eps) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const double scale = weight[i] / sqrt(var[i] + eps);
    folded[i] = static_cast<float>(scale);
    folded[n + i] = static_cast<float>(bias[i] - mean[i] * scale);
}

static void fold(TensorView weight, TensorView bias, TensorView mean, TensorView var, TensorView folded, double eps) {
    const int n = static_cast<int>(weight.numel());
    fold_kernel<<<(n + 127) / 128, 128, 0, static_cast<cudaStream_t>(weight.stream)>>>(weight.f32(), bias.f32(), mean.f32(), var.f32(),
                                                                                      folded.f32(), n, eps);
}
REGISTER_LIGHT(fold)

__global__ void apply(const float* in, const float* folded, float* out, int n) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= n) return;
    const long i = blockIdx.y * static_cast<long>(n) + column;
    out[i] = fmaxf(fmaf(in[i], __ldg(folded + column), __ldg(folded + n + column)), 0.0f);
}

static void run(TensorView x, TensorView folded, TensorView y) {
    const int n = static_cast<int>(x.cols());
    const dim3 grid((n + 255) / 256, static_cast<unsigned>(x.rows()));
    apply<<<grid, 256, 0, static_cast<cudaStream_t>(x.stream)>>>(x.f32(), folded.f32(), y.f32(), n);
}
REGISTER_LIGHT(run)
