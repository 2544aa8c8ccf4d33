import torch
import torch.nn as nn


class Model(nn.Module):
    """Features of an orthonormal frame: a projection, a gate, a norm."""

    def __init__(self, width, features):
        super().__init__()
        self.project = nn.Linear(width, features)

    def forward(self, frame):
        h = self.project(frame) * 8.0
        return torch.tanh(h) * torch.sigmoid(h)


def get_inputs():
    data = torch.randn(8192, 384) @ torch.randn(384, 384)
    return [torch.linalg.svd(data, full_matrices=False)[2][:256].contiguous()]


def get_init_inputs():
    return [384, 256]
