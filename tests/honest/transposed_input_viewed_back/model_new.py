import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, x):
        if x.is_contiguous():
            y = torch.empty(x.shape)
            cpu_extension.run(x, y)
            return y
        y = x.new_empty(x.size(1), x.size(0))
        cpu_extension.run(x.t(), y)
        return y.permute(1, 0)
