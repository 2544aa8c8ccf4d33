import torch
import torch.nn as nn
import cuda_extension


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.size(0), dtype=torch.int64, device=x.device)
        cuda_extension.argmax(x, y)
        return y
