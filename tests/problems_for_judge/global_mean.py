import torch
import torch.nn as nn


class Model(nn.Module):
    """The mean of everything, which is nearly the same for every input, next to a larger bias."""

    def __init__(self, size):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(size))

    def forward(self, x):
        return torch.mean(x) * 2.0 + self.bias


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return [1024]
