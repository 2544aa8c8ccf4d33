import torch
import torch.nn as nn


class Model(nn.Module):
    """Wrapped phase steps of an unrolled angle, below one row that sums up what a hidden layer makes of them."""

    def __init__(self, width):
        super().__init__()
        self.hidden = nn.Linear(width - 1, width - 1)

    def forward(self, angle):
        steps = (angle[:, 1:] - angle[:, :-1]) * 2.0
        wrapped = steps - torch.round(steps)
        summary = torch.tanh(self.hidden(wrapped) * 3.0).mean(0, keepdim=True) * 2.0
        return torch.cat([summary, wrapped], dim=0)


def get_inputs():
    return [torch.randn(512, 512) * 2.0 - 8.0]


def get_init_inputs():
    return [512]
