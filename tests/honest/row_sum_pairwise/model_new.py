import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.size(0))
        cpu_extension.row_sum(x, y)
        return y
