import torch
import torch.nn as nn
import cuda_extension


class ModelNew(nn.Module):
    def forward(self, x):
        scratch, y = torch.empty_like(x), torch.empty_like(x)
        cuda_extension.run(x, scratch, y)
        return y
