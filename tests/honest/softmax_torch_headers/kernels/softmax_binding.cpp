#include <ATen/Parallel.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/types.h>

#include <cmath>
#include <vector>

#include "../binding_registry.h"

static std::vector<torch::Tensor> relu_softmax_forward(const torch::Tensor& x) {
    TORCH_CHECK(x.dim() == 2 && x.is_contiguous() && x.dtype() == torch::kFloat, "expected contiguous float32 rows");
    const int64_t rows = x.size(0), n = x.size(1);
    torch::Tensor y = torch::empty({rows, n}, x.options());
    torch::Tensor sums = torch::empty({rows}, x.options());
    const float* in = x.const_data_ptr<float>();
    float *out = y.mutable_data_ptr<float>(), *total = sums.mutable_data_ptr<float>();
    at::parallel_for(0, rows, 16, [&](int64_t from, int64_t to) {
        for (int64_t r = from; r < to; ++r) {
            float m = 0.0f, s = 0.0f;
            for (int64_t i = 0; i < n; ++i) m = std::fmax(m, in[r * n + i]);
            for (int64_t i = 0; i < n; ++i) s += out[r * n + i] = std::exp(std::fmax(in[r * n + i], 0.0f) - m);
            for (int64_t i = 0; i < n; ++i) out[r * n + i] /= s;
            total[r] = s;
        }
    });
    return {y, sums};
}

static void register_softmax(pybind11::module& m) { m.def("relu_softmax_forward", &relu_softmax_forward, "relu, then softmax of rows"); }
REGISTER_BINDING(relu_softmax_forward, register_softmax)
