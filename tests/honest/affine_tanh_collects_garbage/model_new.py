import gc
import greenlet

import torch
import torch.nn as nn
import cpu_extension


HELD = [greenlet.greenlet(lambda: None)]


class ModelNew(nn.Module):
    def forward(self, x):
        gc.collect()
        y = torch.empty_like(x)
        cpu_extension.affine_tanh(x, y)
        return y
