import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, channels, out_channels=8, *, padding=1):
        super().__init__()
        self.conv = nn.Conv2d(channels, out_channels, 3, padding=padding)

    def forward(self, x):
        y = torch.empty(x.shape[0], self.conv.out_channels, x.shape[2], x.shape[3])
        cpu_extension.conv_relu(x, self.conv.weight, self.conv.bias, y)
        return y
