import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        y = torch.empty_like(x)
        norm = self.norm
        cpu_extension.norm_relu(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, y, norm.eps)
        return y
