import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x):
        y = torch.empty(self.bias.shape)
        cpu_extension.mean_plus_bias(x, self.bias, y)
        return y
