import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        cpu_extension.affine_tanh(x, y)
        return y
