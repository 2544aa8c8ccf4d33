import torch
import torch.nn as nn


class Model(nn.Module):
    """Elementwise chain: eager passes over memory five times, one pass suffices."""

    def forward(self, x):
        x = torch.tanh(x * 0.5 + 0.1)
        return torch.clamp(x, -0.9, 0.9) * 1.5


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []
