import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, channels, out_channels=8, *, padding=1):
        super().__init__()
        self.conv = nn.Conv2d(channels, out_channels, 3, padding=padding)
        self.padding = padding

    def forward(self, x):
        images, _, height, width = x.shape
        y = x.new_empty((images, self.conv.out_channels, height + 2 * self.padding - 2, width + 2 * self.padding - 2))
        for image, out in zip(x.unbind(0), y.unbind(0)):
            cpu_extension.im2col(image, self.padding)
            cpu_extension.gemm_relu(self.conv.weight.view(self.conv.out_channels, -1), self.conv.bias, out)
        return y
