import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    block = 128

    def forward(self, x):
        y = x.new_empty(x.shape)
        for start in range(0, x.shape[0], self.block):
            rows = slice(start, start + self.block)
            cpu_extension.run(x[rows], y.narrow(0, start, min(self.block, x.shape[0] - start)))
        return y
