import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        middle = x.size(0) // 2
        cpu_extension.light_part(x[:middle], y[:middle])
        cpu_extension.headers_part(x[middle:], y[middle:])
        return y
