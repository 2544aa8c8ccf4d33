import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scratch = None

    def forward(self, x):
        if self.scratch is None or self.scratch.numel() < x.numel():
            self.scratch = torch.empty(x.numel())
        y = torch.empty_like(x)
        cpu_extension.run(x, self.scratch, y)
        return y
