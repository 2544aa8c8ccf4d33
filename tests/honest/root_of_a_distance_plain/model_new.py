import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, width, features):
        super().__init__()
        self.project = nn.Linear(width, features)

    def forward(self, e):
        y = torch.empty(e.shape[0], self.project.weight.shape[0])
        p = torch.empty_like(e)
        cpu_extension.momenta(e, self.project.weight, self.project.bias, p, y)
        return y
