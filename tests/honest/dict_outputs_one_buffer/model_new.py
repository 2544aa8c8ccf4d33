from collections import namedtuple

import torch
import torch.nn as nn
import cpu_extension

Pieces = namedtuple("Pieces", "gated mean peak")


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        buffer = torch.empty(rows * columns + 2 * rows)
        gated, mean, peak = Pieces(*buffer.split([rows * columns, rows, rows]))
        gated = gated.as_strided((rows, columns), (columns, 1))
        positive = torch.zeros(rows, dtype=torch.long)
        cpu_extension.gate(x, buffer, positive)
        return dict(gated=gated, rows=(mean, [peak, positive]))
