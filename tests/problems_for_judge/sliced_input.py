"""The input is every second column of a wider tensor; the output is contiguous."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        norm = torch.sqrt((x * x).sum(dim=1, keepdim=True) + 1e-6)
        return x / norm


def get_inputs():
    return [torch.randn(1024, 1024)[:, ::2]]


def get_init_inputs():
    return []
