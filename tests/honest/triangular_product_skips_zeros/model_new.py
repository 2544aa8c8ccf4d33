import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.size(0), b.size(1))
        cpu_extension.product(a, b, c)
        return c
