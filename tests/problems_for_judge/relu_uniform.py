import torch
import torch.nn as nn


class Model(nn.Module):
    """The identity on what is drawn: a problem that cannot tell right from wrong (KernelBench has such)."""

    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.rand(1024, 512)]


def get_init_inputs():
    return []
