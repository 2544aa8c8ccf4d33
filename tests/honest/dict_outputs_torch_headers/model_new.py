import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, x):
        gated, mean, peak, positive = cpu_extension.gate_forward(x)
        return {"gated": gated, "rows": (mean, [peak, positive])}
