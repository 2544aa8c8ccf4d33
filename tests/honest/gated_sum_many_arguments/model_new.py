import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, *inputs):
        y = torch.empty_like(inputs[0])
        cpu_extension.gated_sum(*inputs, y, 0.5, 1.0, inputs[0].numel(), 4096, True, False)
        return y
