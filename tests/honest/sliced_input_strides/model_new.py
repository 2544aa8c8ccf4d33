import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape)
        cpu_extension.normalise(x, y)
        return y
