import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.full(tuple(x.shape), 0.1, dtype=torch.float32)
        cpu_extension.add_half_then_tanh(x, y)
        return y
