import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        assert dim in (1, -1)

    def forward(self, x):
        y = torch.empty_like(x)
        cpu_extension.scan(x, y)
        return y
