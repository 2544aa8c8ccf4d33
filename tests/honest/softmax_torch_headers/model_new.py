import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, x):
        y, sums = cpu_extension.relu_softmax_forward(x)
        return y
