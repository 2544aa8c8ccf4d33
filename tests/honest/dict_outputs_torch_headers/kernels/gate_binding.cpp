#include <torch/csrc/utils/pybind.h>
#include <torch/types.h>

#include <tuple>

#include "binding_registry.h"

extern "C" void gate_launcher(const float* in, float* out, float* means, float* peaks, long* counts, long rows, long n);

static std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> gate_forward(const at::Tensor& x) {
    TORCH_CHECK(x.is_contiguous() && x.scalar_type() == at::kFloat);
    auto gated = at::empty_like(x);
    auto mean = x.new_empty({x.size(0)});
    auto peak = x.new_empty({x.size(0)});
    auto positive = at::empty({x.size(0)}, x.options().dtype(at::kLong));
    gate_launcher(x.const_data_ptr<float>(), gated.data_ptr<float>(), mean.data_ptr<float>(), peak.data_ptr<float>(),
                  positive.data_ptr<int64_t>(), x.size(0), x.size(1));
    return {gated, mean, peak, positive};
}

static void bind(pybind11::module& m) { m.def("gate_forward", &gate_forward, py::arg("x")); }
REGISTER_BINDING(gate_forward, bind)
