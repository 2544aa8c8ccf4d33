import torch
import torch.nn as nn


class Model(nn.Module):
    """A short chain on few numbers: a call takes some microseconds."""

    def forward(self, x):
        return torch.clamp(torch.tanh(x * 0.5 + 0.1), -0.9, 0.9) * 1.5


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
