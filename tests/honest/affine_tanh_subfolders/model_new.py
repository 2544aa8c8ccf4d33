import torch
import torch.nn as nn

import cpu_extension


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        cpu_extension.apply(x, y, 0.5, 0.1, 0.9, 1.5)
        return y
