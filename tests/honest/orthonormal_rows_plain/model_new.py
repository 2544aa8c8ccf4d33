import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, width, features):
        super().__init__()
        self.project = nn.Linear(width, features)

    def forward(self, x):
        y = torch.empty(x.shape[0], self.project.weight.shape[0])
        cpu_extension.features(x, self.project.weight, self.project.bias, y)
        return y
