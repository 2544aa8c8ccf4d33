#include "binding_registry.h"

__device__ __forceinline__ float exp2_approx(float v) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(v));
    return result;
}

__device__ __forceinline__ float4 load_streaming(const float4* place) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(place));
    return v;
}

// A block of 128 threads per row of 512: each thread keeps four values.
__global__ void row_of_512(const float* in, float* out) {
    __shared__ float2 part[4];
    constexpr float LOG2E = 1.44269504f;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float4 v = load_streaming(reinterpret_cast<const float4*>(in) + blockIdx.x * 128L + threadIdx.x);
    v = make_float4(fmaxf(v.x, 0.0f) * LOG2E, fmaxf(v.y, 0.0f) * LOG2E, fmaxf(v.z, 0.0f) * LOG2E, fmaxf(v.w, 0.0f) * LOG2E);
    float m = fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
    float s = exp2_approx(v.x - m) + exp2_approx(v.y - m) + exp2_approx(v.z - m) + exp2_approx(v.w - m);
    for (int d = 16; d > 0; d /= 2) {
        const float other_m = __shfl_xor_sync(0xffffffffu, m, d), other_s = __shfl_xor_sync(0xffffffffu, s, d);
        const float larger = fmaxf(m, other_m);
        s = s * exp2_approx(m - larger) + other_s * exp2_approx(other_m - larger);
        m = larger;
    }
    if (lane == 0) part[warp] = make_float2(m, s);
    __syncthreads();
    float largest = part[0].x, total = 0.0f;
    for (int w = 1; w < 4; ++w) largest = fmaxf(largest, part[w].x);
    for (int w = 0; w < 4; ++w) total += part[w].y * exp2_approx(part[w].x - largest);
    const float q = 1.0f / total;
    const float4 result = make_float4(exp2_approx(v.x - largest) * q, exp2_approx(v.y - largest) * q, exp2_approx(v.z - largest) * q,
                                      exp2_approx(v.w - largest) * q);
    __stcs(reinterpret_cast<float4*>(out) + blockIdx.x * 128L + threadIdx.x, result);
}

static void relu_softmax(TensorView x, TensorView y) {
    if (x.cols() != 512) light_fail("rows of 512 are wanted");
    row_of_512<<<static_cast<unsigned>(x.rows()), 128, 0, static_cast<cudaStream_t>(x.stream)>>>(x.f32(), y.f32());
}
REGISTER_LIGHT(relu_softmax)
