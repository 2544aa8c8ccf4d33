import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)
        self.folded = None

    def forward(self, x):
        if self.folded is None:
            state = self.norm.state_dict()
            self.folded = torch.empty(2, x.shape[-1])
            order = ("weight", "bias", "running_mean", "running_var")
            cpu_extension.fold(*(state[name] for name in order), self.folded, self.norm.eps)
        y = torch.empty_like(x)
        cpu_extension.scale_shift_relu(x, self.folded[0], self.folded[1], y)
        return y
