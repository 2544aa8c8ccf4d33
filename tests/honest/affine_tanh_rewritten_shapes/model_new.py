import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, x):
        shape = x.shape
        seen = x.unsqueeze(0).transpose(0, 1).transpose(0, 1).squeeze(0).unflatten(1, (8, -1)).flatten(0, 1)
        y = torch.empty(shape[0] * 8, shape[1] // 8)
        cpu_extension.run(seen, y)
        first, second = y.reshape(2, -1).unbind(0)
        del first, second
        return y.view(shape).expand_as(x)
