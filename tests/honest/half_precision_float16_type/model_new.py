import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(columns, dtype=torch.float16))

    def forward(self, x):
        y = torch.empty_like(x)
        cpu_extension.run(x, self.gain, y)
        return y
