import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1])
        cpu_extension.product(a, b.t(), c)
        return c
