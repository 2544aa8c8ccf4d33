import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        buffer = torch.empty(rows * (columns + 1), dtype=torch.float32)
        cpu_extension.run(x, buffer)
        peak, bell = buffer[:rows], buffer[rows:].view(rows, columns)
        return bell, peak
