import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, x):
        buffer = torch.empty(x.numel() + 256)
        y = buffer[64 : 64 + x.numel()].view_as(x)
        cpu_extension.run(x, y)
        return y
