import torch
import torch.nn as nn
import cuda_extension


class ModelNew(nn.Module):
    def __init__(self, features, out_features):
        super().__init__()
        self.linear = nn.Linear(features, out_features)

    def forward(self, x):
        activated, _ = cuda_extension.linear_gelu_forward(x, self.linear.weight, self.linear.bias)
        return activated
