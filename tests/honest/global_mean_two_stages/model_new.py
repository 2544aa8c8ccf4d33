import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x):
        partial = torch.empty(64, dtype=torch.float64)
        y = torch.empty_like(self.bias)
        cpu_extension.partial_sums(x, partial)
        cpu_extension.finish(partial, self.bias, y, x.numel())
        return y
