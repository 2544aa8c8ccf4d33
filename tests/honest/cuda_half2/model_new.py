import torch
import torch.nn as nn
import cuda_extension


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(columns, dtype=torch.half))

    def forward(self, x):
        y = torch.empty_like(x)
        cuda_extension.run(x, self.gain, y)
        return y
