import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, x, edges):
        y = torch.empty_like(x)
        cpu_extension.run(x, edges, y)
        return y
