import torch
import torch.nn as nn
import cuda_extension


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.new_empty(x.size(0))
        cuda_extension.row_sum(x, y)
        return y
