#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/types.h>

#include "../binding_registry.h"

extern "C" void affine_tanh_launcher(float* out, const float* in, int size, int threads, cudaStream_t stream);

static torch::Tensor affine_tanh_forward(torch::Tensor x, int threads) {
    TORCH_CHECK(x.is_cuda(), "Input must be a CUDA tensor");
    TORCH_CHECK(x.is_contiguous(), "Input must be contiguous");
    TORCH_CHECK(x.dtype() == torch::kFloat32, "Input must be float32");
    auto output = torch::empty_like(x);
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    affine_tanh_launcher(output.data_ptr<float>(), x.data_ptr<float>(), static_cast<int>(x.numel()), threads, stream);
    return output;
}

static void register_affine_tanh(pybind11::module& m) {
    m.def("affine_tanh_forward", &affine_tanh_forward, "affine, tanh and clamp", py::arg("x"), py::arg("threads") = 256);
}
REGISTER_BINDING(affine_tanh_forward, register_affine_tanh)
