import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, columns, floor):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(columns))
        self.floor = floor

    def forward(self, x, mask, index):
        y = torch.empty_like(x)
        cpu_extension.masked_scale(x, mask, index, self.scale, self.floor, y)
        return y
