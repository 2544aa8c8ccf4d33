"""A 3x3 convolution and relu; the arguments of `Model` are keywords."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels, out_channels=8, *, padding=1):
        super().__init__()
        self.conv = nn.Conv2d(channels, out_channels, 3, padding=padding)

    def forward(self, x):
        return torch.relu(self.conv(x))


def get_inputs():
    return [torch.randn(8, 8, 64, 64)]


def get_init_inputs():
    return {"channels": 8, "out_channels": 8, "padding": 1}
