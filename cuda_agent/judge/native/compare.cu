// Elements on a GPU: gathered from strided memory, and compared as judge/compare.py defines it. Floating-point types as in
// refresh.cpp; everything else is equal byte for byte or not at all.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct Findings {
  unsigned long long finite, odd, wrong, first_odd, first_wrong, loose, far;
  double sum, squares, slack, error;
};

struct Shape {
  long rank, sizes[65], strides[65];
};

__device__ double at(const void* values, int type, long i) {
  switch (type) {
    case 0: return static_cast<const float*>(values)[i];
    case 1: return static_cast<const double*>(values)[i];
    case 2: return __half2float(static_cast<const __half*>(values)[i]);
    default: return __bfloat162float(static_cast<const __nv_bfloat16*>(values)[i]);
  }
}

__device__ void add(double* target, double value) {
  for (int step = 16; step; step /= 2) value += __shfl_down_sync(~0u, value, step);
  if (threadIdx.x % 32 == 0) atomicAdd(target, value);
}

__device__ void add(unsigned long long* target, unsigned long long value) {
  for (int step = 16; step; step /= 2) value += __shfl_down_sync(~0u, value, step);
  if (threadIdx.x % 32 == 0 && value) atomicAdd(target, value);
}

__device__ void lower(unsigned long long* target, unsigned long long value) {
  for (int step = 16; step; step /= 2) value = min(value, __shfl_down_sync(~0u, value, step));
  if (threadIdx.x % 32 == 0 && value != ~0ull) atomicMin(target, value);
}

__device__ void raise(double* target, double value) {  // neither is negative or NaN: such numbers are ordered as their bits are
  for (int step = 16; step; step /= 2) value = max(value, __shfl_down_sync(~0u, value, step));
  if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<unsigned long long*>(target), __double_as_longlong(value));
}

__device__ long begin() { return static_cast<long>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ long step() { return static_cast<long>(gridDim.x) * blockDim.x; }

// How many finite elements there are, and their sum.
extern "C" __global__ void moments(const void* reference, long count, int type, Findings* found) {
  double sum = 0.0;
  unsigned long long finite = 0;
  for (long i = begin(); i < count; i += step()) {
    const double value = at(reference, type, i);
    if (isfinite(value)) sum += value, ++finite;
  }
  add(&found->sum, sum);
  add(&found->finite, finite);
}

// The sum of the squared distances from their mean.
extern "C" __global__ void spread(const void* reference, long count, int type, Findings* found) {
  const double mean = found->sum / static_cast<double>(found->finite);
  double squares = 0.0;
  for (long i = begin(); i < count; i += step()) {
    const double value = at(reference, type, i);
    if (isfinite(value)) squares += (value - mean) * (value - mean);
  }
  add(&found->squares, squares);
}

// What an element should be: the truth, where there is one.
__device__ double exact(const double* truth, double right, long i) { return truth && isfinite(truth[i]) ? truth[i] : right; }

__device__ double spread_of(const Findings* found, double most) {
  return found->finite ? min(most, sqrt(found->squares / static_cast<double>(found->finite))) : 0.0;
}

// After moments and spread: the largest slack, and how many elements have more of it than the tolerance.
extern "C" __global__ void slacken(const void* reference, const double* truth, const float* slack, long count, int type, double rtol, double most, Findings* found) {
  const double deviation = spread_of(found, most);
  unsigned long long loose = 0;
  double largest = 0.0;
  for (long i = begin(); i < count; i += step()) {
    const double right = at(reference, type, i);
    if (!isfinite(right)) continue;
    largest = max(largest, static_cast<double>(slack[i]));
    loose += slack[i] > rtol * (deviation + fabs(exact(truth, right, i)));
  }
  raise(&found->slack, largest);
  add(&found->loose, loose);
}

// After these: which elements of the answer are off by more than is allowed; `truth` and `slack` may be null.
extern "C" __global__ void differ(const void* reference, const void* answer, const double* truth, const float* slack, long count, int type, double rtol, double most, Findings* found) {
  const double deviation = spread_of(found, most), largest = found->slack;
  unsigned long long odd = 0, wrong = 0, far = 0, first_odd = ~0ull, first_wrong = ~0ull;
  double error = 0.0;
  for (long i = begin(); i < count; i += step()) {
    const double right = at(reference, type, i), got = at(answer, type, i);
    if (isfinite(right) ? !isfinite(got) : !(got == right || (isnan(got) && isnan(right)))) {
      ++odd;
      first_odd = min(first_odd, static_cast<unsigned long long>(i));
    } else if (isfinite(right)) {
      const double wanted = exact(truth, right, i), distance = fabs(got - wanted), tolerance = rtol * (deviation + fabs(wanted));
      error = max(error, distance);
      far += distance > tolerance + largest;
      if (distance > tolerance + (slack ? slack[i] : 0.0)) {
        ++wrong;
        first_wrong = min(first_wrong, static_cast<unsigned long long>(i));
      }
    }
  }
  add(&found->odd, odd);
  add(&found->wrong, wrong);
  add(&found->far, far);
  lower(&found->first_odd, first_odd);
  lower(&found->first_wrong, first_wrong);
  raise(&found->error, error);
}

template <class T> __device__ bool same(const void* one, const void* other, long i) {
  return static_cast<const T*>(one)[i] == static_cast<const T*>(other)[i];
}

// Which elements of `width` bytes differ.
extern "C" __global__ void unequal(const void* one, const void* other, long count, int width, Findings* found) {
  unsigned long long wrong = 0, first = ~0ull;
  for (long i = begin(); i < count; i += step()) {
    const bool equal = width == 1 ? same<unsigned char>(one, other, i) : width == 2 ? same<unsigned short>(one, other, i) : width == 4 ? same<unsigned>(one, other, i) : same<unsigned long>(one, other, i);
    if (!equal) {
      ++wrong;
      first = min(first, static_cast<unsigned long long>(i));
    }
  }
  add(&found->wrong, wrong);
  lower(&found->first_wrong, first);
}

template <class T> __device__ void copied(void* target, const void* source, long to, long from) {
  static_cast<T*>(target)[to] = static_cast<const T*>(source)[from];
}

// Elements of `width` bytes (at most 8) in the order of their indices, from where their strides say.
extern "C" __global__ void gather(void* target, const void* source, long count, int width, Shape shape) {
  for (long i = begin(); i < count; i += step()) {
    long from = 0, rest = i;
    for (long axis = shape.rank - 1; axis >= 0; --axis) {
      from += rest % shape.sizes[axis] * shape.strides[axis];
      rest /= shape.sizes[axis];
    }
    switch (width) {
      case 1: copied<unsigned char>(target, source, i, from); break;
      case 2: copied<unsigned short>(target, source, i, from); break;
      case 4: copied<unsigned>(target, source, i, from); break;
      default: copied<unsigned long>(target, source, i, from); break;
    }
  }
}
