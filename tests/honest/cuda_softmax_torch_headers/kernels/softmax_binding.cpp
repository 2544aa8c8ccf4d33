#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/types.h>

#include "../binding_registry.h"

extern "C" cudaError_t softmax_launcher(const float* in, float* out, int rows, int n, cudaStream_t stream);

static at::Tensor relu_softmax_forward(const at::Tensor& x) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.dim() == 2, "a contiguous CUDA matrix is wanted");
    const c10::cuda::CUDAGuard guard(x.device());
    at::Tensor y = x.new_empty(x.sizes());
    const cudaError_t status = softmax_launcher(x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), static_cast<int>(x.size(0)),
                                                static_cast<int>(x.size(1)), c10::cuda::getCurrentCUDAStream());
    TORCH_CHECK(status == cudaSuccess, cudaGetErrorString(status));
    return y;
}

static void bind(pybind11::module& m) { m.def("relu_softmax_forward", &relu_softmax_forward); }
REGISTER_BINDING(relu_softmax_forward, bind)
