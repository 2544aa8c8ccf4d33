import torch
import torch.nn as nn


class Model(nn.Module):
    """Softmax over so many columns that every answer is below a hundredth."""

    def forward(self, x):
        return torch.softmax(torch.relu(x), dim=-1)


def get_inputs():
    return [torch.randn(64, 8192)]


def get_init_inputs():
    return []
