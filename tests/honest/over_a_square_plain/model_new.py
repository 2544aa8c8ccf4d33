import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, width, features):
        super().__init__()
        self.project = nn.Linear(width, features)

    def forward(self, x, r):
        y = torch.empty_like(r)
        cpu_extension.charges(x, self.project.weight, self.project.bias, r, y)
        return y
