import torch
import torch.nn as nn
import cuda_extension


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.zeros(a.size(0), b.size(1), device=a.device)
        cuda_extension.product(a, b, c, 0.125, 2)
        return c
