"""Seven input tensors of one shape, for kernels with many arguments."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b, c, d, e, f, g):
        return a * torch.sigmoid(b) + c * d - e * 0.5 + torch.maximum(f, g)


def get_inputs():
    return [torch.randn(256, 512) for _ in range(7)]


def get_init_inputs():
    return []
