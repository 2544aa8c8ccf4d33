import torch
import torch.nn as nn
from cpu_extension import affine, clamp_in_place, hyperbolic_tangent, store


class ModelNew(nn.Module):
    def forward(self, x):
        scratch = torch.empty(x.numel())
        affine(x, scratch)
        hyperbolic_tangent(scratch)
        clamp_in_place(scratch, 0.9, 1.5)
        y = torch.empty_like(x)
        store(scratch, y)
        return y
