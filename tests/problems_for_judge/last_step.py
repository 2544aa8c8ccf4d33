import torch
import torch.nn as nn


class Model(nn.Module):
    """The last of many steps: the reference's answer is a view into all of them."""

    def forward(self, x):
        return torch.cumsum(torch.tanh(x), dim=1)[:, -1]


def get_inputs():
    return [torch.randn(32, 256, 64)]


def get_init_inputs():
    return []
