#include "../include/launchers.h"
#include "grid_stride.cuh"

struct Affine {
    float scale, shift;
    __device__ float operator()(float v) const { return v * scale + shift; }
};

extern "C" void launch_affine(const float* in, float* out, long n, void* stream) {
    grid_stride<<<1024, 256, 0, static_cast<cudaStream_t>(stream)>>>(in, out, n, Affine{0.5f, 0.1f});
}
