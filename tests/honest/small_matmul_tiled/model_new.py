import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = a.new_zeros(a.shape[0], b.shape[1])
        cpu_extension.product(a, b, c, 0.125)
        return c
