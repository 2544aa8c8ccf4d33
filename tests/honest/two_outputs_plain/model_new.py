import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, x):
        bell, peak = torch.empty_like(x), x.new_empty(x.size(0))
        cpu_extension.run(x, bell, peak)
        return bell, peak
