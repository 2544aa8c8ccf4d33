#pragma once
template <class Element>
__global__ void grid_stride(const float* in, float* out, long n, Element element) {
    for (long i = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x; i < n; i += static_cast<long>(gridDim.x) * blockDim.x)
        out[i] = element(in[i]);
}
