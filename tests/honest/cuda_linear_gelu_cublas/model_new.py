import torch
import torch.nn as nn
import cuda_extension


class ModelNew(nn.Module):
    def __init__(self, features, out_features):
        super().__init__()
        self.linear = nn.Linear(features, out_features)

    def forward(self, x):
        y = torch.empty(x.size(0), self.linear.out_features, device=x.device)
        cuda_extension.linear_gelu(x, self.linear.weight, self.linear.bias, y)
        return y
