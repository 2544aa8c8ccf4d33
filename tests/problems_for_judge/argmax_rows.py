import torch
import torch.nn as nn


class Model(nn.Module):
    """Position of the largest element of each row: int64."""

    def forward(self, x):
        return torch.argmax(x, dim=-1)


def get_inputs():
    return [torch.randn(1024, 512)]


def get_init_inputs():
    return []
