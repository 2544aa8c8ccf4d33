#include <c10/cuda/CUDAStream.h>
#include <cublas_v2.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/types.h>

#include <memory>
#include <type_traits>
#include <vector>

#include "binding_registry.h"

extern "C" void gelu_launcher(const float* in, const float* bias, float* out, int total, int n, cudaStream_t stream);

static cublasHandle_t blas() {
    static cublasHandle_t handle = [] {
        cublasHandle_t made = nullptr;
        TORCH_CHECK(cublasCreate(&made) == CUBLAS_STATUS_SUCCESS, "cuBLAS did not start");
        return made;
    }();
    return handle;
}

static std::vector<at::Tensor> linear_gelu_forward(at::Tensor x, at::Tensor weight, at::Tensor bias) {
    const int m = static_cast<int>(x.size(0)), k = static_cast<int>(x.size(1)), n = static_cast<int>(weight.size(0));
    TORCH_CHECK(weight.size(1) == k && bias.size(0) == n, "the shapes do not fit");
    auto product = torch::empty({m, n}, x.options());
    auto activated = torch::empty_like(product);
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    cublasSetStream(blas(), stream);
    const float one = 1.0f, zero = 0.0f;
    TORCH_CHECK(cublasSgemm(blas(), CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, weight.data_ptr<float>(), k, x.data_ptr<float>(), k, &zero,
                            product.data_ptr<float>(), n) == CUBLAS_STATUS_SUCCESS, "the product failed");
    gelu_launcher(product.data_ptr<float>(), bias.data_ptr<float>(), activated.data_ptr<float>(), m * n, n, stream);
    return {activated, product};
}

static void bind(pybind11::module& m) { m.def("linear_gelu_forward", &linear_gelu_forward); }
REGISTER_BINDING(linear_gelu_forward, bind)
