"""Problem and submissions that the judge's tests share."""

from cuda_agent.judge.verdict import Submission

PROBLEM = """import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        x = torch.relu(x)
        x = torch.softmax(x, dim=-1)
        return x

def get_inputs():
    return [torch.randn(128, 512)]

def get_init_inputs():
    return []
"""

LINEAR = """import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features, out_features):
        super().__init__()
        self.linear = nn.Linear(features, out_features)

    def forward(self, x):
        return self.linear(x)

def get_inputs():
    return [torch.randn(16, 64)]

def get_init_inputs():
    return [64, 32]
"""

MODEL = """import torch
import torch.nn as nn
import cpu_extension

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        y = torch.empty_like(x)
        cpu_extension.run(x, y)
        return y
"""

KERNEL = """#include "binding_registry.h"
static void run(TensorView x, TensorView y) {
    const float* in = x.f32(); float* out = y.f32();
    const long rows = x.rows(), n = x.cols();
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r) {
        const float* a = in + r * n; float* b = out + r * n;
        float m = 0.0f;
        #pragma omp simd reduction(max:m)
        for (long i = 0; i < n; ++i) m = a[i] > m ? a[i] : m;
        float s = 0.0f;
        #pragma omp simd reduction(+:s)
        for (long i = 0; i < n; ++i) { float v = a[i] > 0.0f ? a[i] : 0.0f; b[i] = expf(v - m); s += b[i]; }
        const float q = 1.0f / s;
        #pragma omp simd
        for (long i = 0; i < n; ++i) b[i] *= q;
    }
}
REGISTER_LIGHT(run)
"""

LINEAR_MODEL = """import torch
import torch.nn as nn
import cpu_extension

class ModelNew(nn.Module):
    def __init__(self, features, out_features):
        super().__init__()
        self.linear = nn.Linear(features, out_features)

    def forward(self, x):
        y = x.new_empty(x.shape[0], self.linear.out_features)
        cpu_extension.run(x, self.linear.weight, self.linear.bias, y)
        return y
"""

LINEAR_KERNEL = """#include "binding_registry.h"
static void run(TensorView x, TensorView w, TensorView bias, TensorView y) {
    const float *a = x.f32(), *b = w.f32(), *c = bias.f32(); float* out = y.f32();
    const long k = x.cols(), n = y.cols();
    for (long r = 0; r < x.rows(); ++r)
        for (long j = 0; j < n; ++j) {
            float s = c[j];
            for (long i = 0; i < k; ++i) s += a[r * k + i] * b[j * k + i];
            out[r * n + j] = s;
        }
}
REGISTER_LIGHT(run)
"""


def submission(model: str = MODEL, kernel: str = KERNEL) -> Submission:
    """A submission of one kernel file."""
    return Submission({"model_new.py": model, "kernels/kernel.cpp": kernel})


def changed(text: str, old: str, new: str) -> str:
    """Replace a part that must be there."""
    assert old in text
    return text.replace(old, new)


GOOD = submission()
BODY = "        y = torch.empty_like(x)\n        cpu_extension.run(x, y)\n        return y\n"


def with_body(*lines: str) -> Submission:
    """GOOD with another body of forward."""
    return submission(changed(MODEL, BODY, "".join(f"        {line}\n" for line in lines)))
