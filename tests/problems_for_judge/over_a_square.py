import torch
import torch.nn as nn


class Model(nn.Module):
    """Projected charges over squared distances, which are kept away from zero."""

    def __init__(self, width, features):
        super().__init__()
        self.project = nn.Linear(width, features)

    def forward(self, x, r):
        return self.project(x) / (r * r)


def get_inputs():
    r = torch.randn(512, 1024)
    return [torch.randn(512, 256), r + torch.sign(r) * 0.5]


def get_init_inputs():
    return [256, 1024]
