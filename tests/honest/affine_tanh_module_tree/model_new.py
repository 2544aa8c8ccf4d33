import torch
import torch.nn as nn
import cpu_extension


class Affine(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        cpu_extension.affine(x, y)
        return y


class TanhClamp(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        cpu_extension.tanh_clamp(x, y)
        return y


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = nn.Sequential(Affine(), nn.Identity(), TanhClamp())
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.steps(x)
