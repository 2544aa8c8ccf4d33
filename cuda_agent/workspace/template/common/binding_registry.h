// Registration of kernels with the extension module (cpu_extension or cuda_extension). Protected: the judge uses its own.
//
//   #include "binding_registry.h"
//   static void run(TensorView x, TensorView y, double scale) { ... }   // any mix of TensorView, double, float, long, int, bool
//   REGISTER_LIGHT(run)                                                 // Python: cpu_extension.run(x, y, 0.5)
//
// Plain C++ without any other header builds in a fraction of a second (CUDA: nvcc's second). Files that need torch's headers may register with
// REGISTER_BINDING(name, fn), where `fn` takes pybind11::module&; they build in tens of seconds.
#pragma once

#ifndef __CUDACC__
// --- mathematics: no <cmath> needed; the functions below vectorise in `#pragma omp simd` loops ---------------------------
#ifdef LIGHT_NO_VECTOR
#define LIGHT_VECTOR
#else
#define LIGHT_VECTOR __attribute__((simd("notinbranch"), const))
#endif
extern "C" {
LIGHT_VECTOR float expf(float) noexcept;
LIGHT_VECTOR float logf(float) noexcept;
LIGHT_VECTOR float sinf(float) noexcept;
LIGHT_VECTOR float cosf(float) noexcept;
LIGHT_VECTOR float powf(float, float) noexcept;
LIGHT_VECTOR double exp(double) noexcept;
LIGHT_VECTOR double log(double) noexcept;
#ifdef LIGHT_VECTOR_TANH
LIGHT_VECTOR float tanhf(float) noexcept;
LIGHT_VECTOR float erff(float) noexcept;
LIGHT_VECTOR float expm1f(float) noexcept;
LIGHT_VECTOR float log1pf(float) noexcept;
#else
float tanhf(float) noexcept;
float erff(float) noexcept;
float expm1f(float) noexcept;
float log1pf(float) noexcept;
#endif
float sqrtf(float) noexcept;
float fabsf(float) noexcept;
float fmaxf(float, float) noexcept;
float fminf(float, float) noexcept;
float floorf(float) noexcept;
float ceilf(float) noexcept;
double sqrt(double) noexcept;
double fabs(double) noexcept;
double tanh(double) noexcept;
double erf(double) noexcept;
}
#endif
extern "C" [[noreturn]] void light_fail(const char* message);

// --- tensors --------------------------------------------------------------------------------------------------------------
enum LightType : int { LIGHT_F32 = 0, LIGHT_F64 = 1, LIGHT_I64 = 2, LIGHT_I32 = 3, LIGHT_U8 = 4, LIGHT_BOOL = 5, LIGHT_F16 = 6, LIGHT_BF16 = 7, LIGHT_OTHER = 99 };

// A view of a torch tensor for the duration of the call; strides count elements.
struct TensorView {
  void* pointer;
  const long* sizes;
  const long* strides;
  long elements;
  int dimensions;
  int type;  // LightType
  int device;  // -1 is the CPU
  void* stream;  // the current CUDA stream; null on the CPU
  bool contiguous;

  long numel() const { return elements; }
  int ndim() const { return dimensions; }
  int dtype() const { return type; }
  long size(int i) const { return sizes[i < 0 ? i + dimensions : i]; }
  long stride(int i) const { return strides[i < 0 ? i + dimensions : i]; }
  long cols() const { return dimensions == 0 ? 1 : sizes[dimensions - 1]; }  // last dimension
  long rows() const { return cols() == 0 ? 0 : elements / cols(); }           // all others together
  float* f32() const { return static_cast<float*>(checked(LIGHT_F32, "f32() needs a contiguous float32 tensor")); }
  double* f64() const { return static_cast<double*>(checked(LIGHT_F64, "f64() needs a contiguous float64 tensor")); }
  long* i64() const { return static_cast<long*>(checked(LIGHT_I64, "i64() needs a contiguous int64 tensor")); }
  int* i32() const { return static_cast<int*>(checked(LIGHT_I32, "i32() needs a contiguous int32 tensor")); }
  bool* boolean() const { return static_cast<bool*>(checked(LIGHT_BOOL, "boolean() needs a contiguous bool tensor")); }
  void* data() const { return pointer; }  // any type and layout: use size() and stride()

 private:
  void* checked(int wanted, const char* message) const {
    if (type != wanted || !contiguous) light_fail(message);
    return pointer;
  }
};

// --- registration ---------------------------------------------------------------------------------------------------------
union LightArgument {
  TensorView tensor;
  double number;
  long integer;
};

// `signature` has one letter per parameter: t tensor, d floating point, l integer, b bool.
struct LightEntry {
  const char* name;
  const char* signature;
  void (*call)(const LightArgument*);
  LightEntry* next;
};
extern "C" void light_register(LightEntry* entry);

namespace light {
template <class T> struct Parameter;
template <>
struct Parameter<TensorView> { static constexpr char letter = 't'; static const TensorView& get(const LightArgument& a) { return a.tensor; } };
template <>
struct Parameter<double> { static constexpr char letter = 'd'; static double get(const LightArgument& a) { return a.number; } };
template <>
struct Parameter<float> { static constexpr char letter = 'd'; static float get(const LightArgument& a) { return static_cast<float>(a.number); } };
template <>
struct Parameter<long> { static constexpr char letter = 'l'; static long get(const LightArgument& a) { return a.integer; } };
template <>
struct Parameter<long long> { static constexpr char letter = 'l'; static long long get(const LightArgument& a) { return a.integer; } };
template <>
struct Parameter<unsigned long> { static constexpr char letter = 'l'; static unsigned long get(const LightArgument& a) { return static_cast<unsigned long>(a.integer); } };
template <>
struct Parameter<int> { static constexpr char letter = 'l'; static int get(const LightArgument& a) { return static_cast<int>(a.integer); } };
template <>
struct Parameter<bool> { static constexpr char letter = 'b'; static bool get(const LightArgument& a) { return a.integer != 0; } };
template <class T> struct Parameter<const T&> : Parameter<T> {};
template <class T> struct Parameter<const T> : Parameter<T> {};
template <int... I> struct Indices {};
template <int N, int... I> struct Count : Count<N - 1, N - 1, I...> {};
template <int... I> struct Count<0, I...> { using type = Indices<I...>; };

template <auto F> struct Caller;
template <class... A, void (*F)(A...)> struct Caller<F> {
  static constexpr char signature[] = {Parameter<A>::letter..., '\0'};
  template <int... I> static void unpack(const LightArgument* a, Indices<I...>) { (void)a; F(Parameter<A>::get(a[I])...); }
  static void call(const LightArgument* a) { unpack(a, typename Count<sizeof...(A)>::type()); }
};
struct Registration {
  explicit Registration(LightEntry* entry) { light_register(entry); }
};
}  // namespace light

#define REGISTER_LIGHT(fn)                                                                                     \
  static LightEntry light_entry_##fn = {#fn, light::Caller<&fn>::signature, &light::Caller<&fn>::call, nullptr}; \
  static light::Registration light_registration_##fn(&light_entry_##fn);

// --- the style of torch's headers -----------------------------------------------------------------------------------------
// Usable where <pybind11/pybind11.h> or torch's headers are included; the pointer's type is checked at the macro.
extern "C" void binding_register(const char* name, void (*fn)(void*));
namespace light {
template <auto F> struct Binding;
template <class Module, void (*F)(Module&)> struct Binding<F> {
  static void apply(void* module) { F(*static_cast<Module*>(module)); }
  explicit Binding(const char* name) { binding_register(name, &apply); }
};
}  // namespace light
#define REGISTER_BINDING(name, fn) static light::Binding<&fn> binding_registration_##name(#name);
