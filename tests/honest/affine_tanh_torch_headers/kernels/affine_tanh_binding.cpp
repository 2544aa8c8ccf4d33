#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>

#include "../binding_registry.h"

extern "C" void affine_tanh_launcher(float* out, const float* in, long n, float scale, float shift, float limit, float gain);

static torch::Tensor affine_tanh_forward(torch::Tensor x, double scale, double shift, double limit, double gain) {
    TORCH_CHECK(x.device().is_cpu(), "x must be a CPU tensor");
    TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
    TORCH_CHECK(x.scalar_type() == torch::kFloat32, "x must be float32");
    auto out = torch::empty_like(x);
    affine_tanh_launcher(out.data_ptr<float>(), x.data_ptr<float>(), x.numel(), static_cast<float>(scale),
                         static_cast<float>(shift), static_cast<float>(limit), static_cast<float>(gain));
    return out;
}

static void register_affine_tanh(pybind11::module& m) {
    m.def("affine_tanh_forward", &affine_tanh_forward, "gain * clamp(tanh(scale * x + shift))", py::arg("x"), py::arg("scale"),
          py::arg("shift"), py::arg("limit") = 1.0, py::arg("gain") = 1.0);
}
REGISTER_BINDING(affine_tanh_forward, register_affine_tanh)
