import gc

import torch
import torch.nn as nn
import cuda_extension


class ModelNew(nn.Module):
    def forward(self, x):
        gc.collect()
        y = torch.empty_like(x)
        cuda_extension.affine_tanh(x, y)
        return y
