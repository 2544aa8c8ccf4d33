import torch
import torch.nn as nn
import cuda_extension


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x):
        total = torch.zeros(1, dtype=torch.float64, device=x.device)
        finished = torch.zeros(1, dtype=torch.int32, device=x.device)
        y = torch.empty_like(self.bias)
        cuda_extension.run(x, total, finished, self.bias, y)
        return y
