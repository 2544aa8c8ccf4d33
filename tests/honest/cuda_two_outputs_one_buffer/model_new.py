import torch
import torch.nn as nn
import cuda_extension


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        buffer = x.new_empty(rows * columns + rows)
        bell, peak = buffer[: rows * columns].view(rows, columns), buffer[rows * columns :]
        cuda_extension.run(x, bell, peak)
        return bell, peak
