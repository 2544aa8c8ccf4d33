// The extension module: turns Python arguments into TensorViews and calls what kernels/ registered. Protected: the judge
// uses its own copy, compiled once per machine and linked with each submission.
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <time.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "binding_registry.h"

#ifdef WITH_CUDA
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#define EXTENSION cuda_extension
#else
#define EXTENSION cpu_extension
#endif

namespace {

struct BindingEntry {
  const char* name;
  void (*apply)(void*);
};

LightEntry*& light_entries() {
  static LightEntry* first = nullptr;
  return first;
}

std::vector<BindingEntry>& binding_entries() {
  static std::vector<BindingEntry> entries;
  return entries;
}

// Read and written by the judge from outside, by its address (examination.py).
struct State {
  long ghost = 0;      // what kernels/ registered does nothing: the answer must then be wrong
  long inside_ns = 0;  // time spent in it
  long calls = 0;      // calls of it
};
volatile State state;
int depth = 0;  // nesting of such calls

long now_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}

struct Inside {
  long start = now_ns();
  Inside() {
    ++depth;
    state.calls = state.calls + 1;
  }
  ~Inside() {
    if (--depth == 0) state.inside_ns = state.inside_ns + now_ns() - start;
  }
};

// A kernel that could not be launched leaves its output as it was, and says so only if it is asked.
void check_launches() {
#ifdef WITH_CUDA
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw std::runtime_error(std::string("kernel launch failed: ") + cudaGetErrorString(error));
#endif
}

int light_type(c10::ScalarType type) {
  switch (type) {
    case c10::kFloat: return LIGHT_F32;
    case c10::kDouble: return LIGHT_F64;
    case c10::kLong: return LIGHT_I64;
    case c10::kInt: return LIGHT_I32;
    case c10::kByte: return LIGHT_U8;
    case c10::kBool: return LIGHT_BOOL;
    case c10::kHalf: return LIGHT_F16;
    case c10::kBFloat16: return LIGHT_BF16;
    default: return LIGHT_OTHER;
  }
}

TensorView view(PyObject* object) {
  const at::Tensor& tensor = THPVariable_Unpack(object);
  TensorView result{};
#ifdef WITH_CUDA
  if (!tensor.is_cuda()) throw std::invalid_argument("cuda_extension takes CUDA tensors only");
  result.device = tensor.device().index();
  result.stream = c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
#else
  if (!tensor.device().is_cpu()) throw std::invalid_argument("cpu_extension takes CPU tensors only");
  result.device = -1;
#endif
  result.pointer = tensor.data_ptr();
  result.sizes = tensor.sizes().data();
  result.strides = tensor.strides().data();
  result.elements = tensor.numel();
  result.dimensions = static_cast<int>(tensor.dim());
  result.type = light_type(tensor.scalar_type());
  result.contiguous = tensor.is_contiguous();
  return result;
}

void convert(char letter, PyObject* object, LightArgument& argument, const std::string& where) {
  if (letter == 't') {
    if (!THPVariable_Check(object)) throw pybind11::type_error(where + " must be a tensor");
    argument.tensor = view(object);
  } else if (letter == 'd') {
    argument.number = PyFloat_AsDouble(object);
  } else if (letter == 'b') {
    argument.integer = PyObject_IsTrue(object);
  } else {
    argument.integer = PyLong_AsLong(object);
  }
  if (PyErr_Occurred()) throw pybind11::error_already_set();
}

PyObject* invoke(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  const auto* entry = static_cast<const LightEntry*>(PyCapsule_GetPointer(self, nullptr));
  try {
    const auto expected = static_cast<Py_ssize_t>(std::strlen(entry->signature));
    if (count != expected || count > 64) {
      throw pybind11::type_error(std::string(entry->name) + " takes " + std::to_string(expected) + " arguments, got " + std::to_string(count));
    }
    LightArgument values[64];
    for (Py_ssize_t i = 0; i < count; ++i) {
      convert(entry->signature[i], arguments[i], values[i], std::string(entry->name) + ": argument " + std::to_string(i));
    }
    Inside inside;
    if (!state.ghost) {
      entry->call(values);
      check_launches();
    }
  } catch (pybind11::error_already_set& error) {
    error.restore();
    return nullptr;
  } catch (const pybind11::builtin_exception& error) {
    error.set_error();
    return nullptr;
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "the kernel threw something that is no std::exception");
    return nullptr;
  }
  Py_RETURN_NONE;
}

// A function of a torch-header binding behind the same accounting.
PyObject* forward(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  if (state.ghost) {
    PyErr_SetString(PyExc_RuntimeError, "the functions of kernels/ are disabled");
    return nullptr;
  }
  Inside inside;
  PyObject* result = PyObject_Vectorcall(self, arguments, static_cast<size_t>(count), names);
  if (result == nullptr) return nullptr;
  try {
    check_launches();
  } catch (const std::exception& error) {
    Py_DECREF(result);
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
  return result;
}

void account(pybind11::module& module) {
  auto names = pybind11::reinterpret_borrow<pybind11::dict>(PyModule_GetDict(module.ptr()));
  std::vector<std::pair<std::string, pybind11::object>> functions;
  for (auto item : names) {
    if (PyCFunction_Check(item.second.ptr())) {
      functions.emplace_back(pybind11::str(item.first), pybind11::reinterpret_borrow<pybind11::object>(item.second));
    }
  }
  for (auto& [name, function] : functions) {
    auto* kept = new std::string(name);
    auto* definition = new PyMethodDef{kept->c_str(), reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&forward)), METH_FASTCALL | METH_KEYWORDS, nullptr};
    module.attr(name.c_str()) = pybind11::reinterpret_steal<pybind11::object>(PyCFunction_New(definition, function.ptr()));
  }
}

}  // namespace

extern "C" void light_register(LightEntry* entry) {
  entry->next = light_entries();
  light_entries() = entry;
}

extern "C" void binding_register(const char* name, void (*apply)(void*)) { binding_entries().push_back({name, apply}); }

extern "C" [[noreturn]] void light_fail(const char* message) { throw std::invalid_argument(message); }

PYBIND11_MODULE(EXTENSION, module) {
  for (const BindingEntry& entry : binding_entries()) entry.apply(&module);
  account(module);
  for (LightEntry* entry = light_entries(); entry != nullptr; entry = entry->next) {
    auto* definition = new PyMethodDef{entry->name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&invoke)), METH_FASTCALL, nullptr};
    auto capsule = pybind11::reinterpret_steal<pybind11::object>(PyCapsule_New(entry, nullptr, nullptr));
    module.attr(entry->name) = pybind11::reinterpret_steal<pybind11::object>(PyCFunction_New(definition, capsule.ptr()));
  }
  module.def("_state", [] { return reinterpret_cast<long>(&state); });
}
