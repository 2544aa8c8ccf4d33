// Fresh input values on a GPU; see refresh.cpp, whose types these are. One thread per element, in strides.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <class T> __device__ T scaled(T value, double factor) { return static_cast<T>(value * static_cast<T>(factor)); }
template <> __device__ __half scaled(__half value, double factor) { return __float2half(__half2float(value) * static_cast<float>(factor)); }
template <> __device__ __nv_bfloat16 scaled(__nv_bfloat16 value, double factor) {
  return __float2bfloat16(__bfloat162float(value) * static_cast<float>(factor));
}
template <> __device__ unsigned char scaled(unsigned char value, double) { return value; }

template <class T> __device__ void renew(void* target, const void* source, long count, long shift, double factor) {
  const long step = static_cast<long>(gridDim.x) * blockDim.x;
  for (long i = static_cast<long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const long from = i >= shift ? i - shift : i - shift + count;
    static_cast<T*>(target)[i] = scaled(static_cast<const T*>(source)[from], factor);
  }
}

extern "C" __global__ void refresh(void* target, const void* source, long count, long shift, int type, double factor) {
  switch (type) {
    case 0: return renew<float>(target, source, count, shift, factor);
    case 1: return renew<double>(target, source, count, shift, factor);
    case 2: return renew<__half>(target, source, count, shift, factor);
    case 3: return renew<__nv_bfloat16>(target, source, count, shift, factor);
    default: return renew<unsigned char>(target, source, count, 0, 1.0);
  }
}
