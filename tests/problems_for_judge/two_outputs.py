import torch
import torch.nn as nn


class Model(nn.Module):
    """A tuple of an elementwise output and a reduction."""

    def forward(self, x):
        return torch.exp(-x * x), torch.amax(x, dim=-1)


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []
