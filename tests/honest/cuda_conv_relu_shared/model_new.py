import torch
import torch.nn as nn
import cuda_extension


class ModelNew(nn.Module):
    def __init__(self, channels, out_channels=8, *, padding=1):
        super().__init__()
        self.conv = nn.Conv2d(channels, out_channels, 3, padding=padding)

    def forward(self, x):
        y = x.new_empty(x.size(0), self.conv.out_channels, x.size(2), x.size(3))
        cuda_extension.conv_relu(x, self.conv.weight, self.conv.bias, y)
        return y
