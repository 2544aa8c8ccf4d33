"""The reference changes its input in place, and so must or may the candidate."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        x.add_(1)
        return x * 2


def get_inputs():
    return [torch.randn(1024, 512)]


def get_init_inputs():
    return []
