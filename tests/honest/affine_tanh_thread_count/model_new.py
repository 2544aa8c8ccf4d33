import os

import torch
import torch.nn as nn
import cpu_extension

THREADS = max(1, min(2, os.cpu_count() or 1, int(os.environ.get("OMP_NUM_THREADS", "2"))))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        cpu_extension.run(x, y, THREADS)
        return y
