import torch
import torch.nn as nn
import cpu_extension


def _holder(features):
    holder = nn.Module()
    for name in ("weight", "bias"):
        holder.register_parameter(name, nn.Parameter(torch.zeros(features)))
    for name in ("running_mean", "running_var"):
        holder.register_buffer(name, torch.zeros(features))
    holder.register_buffer("num_batches_tracked", torch.tensor(0, dtype=torch.long))
    return holder


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = _holder(features)
        self.scale = self.shift = None

    @property
    def folded(self):
        if self.scale is None:
            norm = self.norm
            self.scale, self.shift = torch.empty_like(norm.bias.data), torch.empty_like(norm.bias.data)
            cpu_extension.fold(norm.weight, norm.bias, norm.running_mean, norm.running_var, self.scale, self.shift)
        return self.scale, self.shift

    def forward(self, x):
        y = torch.empty_like(x)
        cpu_extension.run(x, *self.folded, y)
        return y
