import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, features))
        self.bias = nn.Parameter(torch.empty(out_features))

    def forward(self, x):
        y = torch.empty_like(x)
        cpu_extension.run(x, y)
        return y
