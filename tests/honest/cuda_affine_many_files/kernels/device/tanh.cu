#include "../include/launchers.h"
#include "grid_stride.cuh"

struct TanhClamp {
    __device__ float operator()(float v) const { return 1.5f * fminf(fmaxf(tanhf(v), -0.9f), 0.9f); }
};

extern "C" const char* launch_tanh(const float* in, float* out, long n, void* stream) {
    grid_stride<<<1024, 256, 0, static_cast<cudaStream_t>(stream)>>>(in, out, n, TanhClamp{});
    const cudaError_t status = cudaGetLastError();
    return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}
