import torch
import torch.nn as nn


class Model(nn.Module):
    """An answer with nothing beside it, as attention without its weights."""

    def forward(self, x):
        return torch.tanh(x * 0.5 + 0.1), None


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []
