import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 256)

    def forward(self, x):
        y = torch.empty_like(x)
        cpu_extension.run(x, y)
        return y
