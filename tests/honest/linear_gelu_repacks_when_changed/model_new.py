import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, features, out_features):
        super().__init__()
        self.linear = nn.Linear(features, out_features)
        self._cache = {}

    def _packed(self):
        weight = self.linear.weight
        key = (weight.data_ptr(), weight._version, weight.shape)
        if key not in self._cache:
            self._cache.clear()
            packed = torch.empty(weight.size(1), weight.size(0))
            cpu_extension.pack(weight, packed)
            self._cache[key] = packed
        return self._cache[key]

    def forward(self, x):
        y = torch.empty(x.size(0), self.linear.out_features)
        cpu_extension.linear_gelu(x, self._packed(), self.linear.bias, y)
        return y
