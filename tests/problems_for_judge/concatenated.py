import torch
import torch.nn as nn


class Model(nn.Module):
    """Joins two inputs."""

    def forward(self, x, y):
        return torch.cat([x, y], dim=0)


def get_inputs():
    return [torch.randn(512, 1024), torch.randn(512, 1024)]


def get_init_inputs():
    return []
