import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        del args, kwargs

    def forward(self, x, out=None, *, scale: float = 0.5, shift: float = 0.1, bound: float = 0.9):
        with torch.no_grad():
            out = torch.empty(*x.shape, dtype=torch.float32) if out is None else out
            return self._launch(x.detach(), out, scale, shift, bound)

    def _launch(self, x, out, scale, shift, bound):
        cpu_extension.run(x, out, scale, shift, bound, True, 1.5, 3)
        return out
