import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        cpu_extension.run(x, y)
        return y[:, -1]
