import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, x):
        packed, y = torch.empty(x.shape), torch.empty(x.shape)
        cpu_extension.pack(x, packed)
        cpu_extension.normalise(packed, y)
        return y
