import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, x):
        rows = x.shape[0]
        gated, mean, peak = torch.empty_like(x), x.new_empty(rows), x.new_empty(rows)
        positive = torch.empty(rows, dtype=torch.int64)
        cpu_extension.gate(x, gated, mean, peak, positive)
        return {"gated": gated, "rows": (mean, [peak, positive])}
