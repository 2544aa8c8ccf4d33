import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return cpu_extension.affine_tanh_forward(x, 0.5, 0.1, limit=0.9, gain=1.5)
