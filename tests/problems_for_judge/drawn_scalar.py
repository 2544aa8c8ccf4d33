import torch
import torch.nn as nn


class Model(nn.Module):
    """A number that is drawn anew with each set of inputs."""

    def forward(self, x, alpha):
        return torch.tanh(x) * alpha + x


def get_inputs():
    return [torch.randn(512, 512), float(torch.rand(1)) + 0.5]


def get_init_inputs():
    return []
