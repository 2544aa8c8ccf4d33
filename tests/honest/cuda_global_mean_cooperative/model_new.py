import torch
import torch.nn as nn
import cuda_extension


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x):
        workspace = torch.empty(1024, dtype=torch.float64, device=x.device)
        y = torch.empty_like(self.bias)
        cuda_extension.mean_plus_bias(x, workspace, self.bias, y)
        return y
