import torch
import torch.nn as nn

try:
    from typing import override
except ImportError:  # before Python 3.12

    def override(method):
        return method


import cpu_extension


class UnsupportedInput(Exception):
    pass


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.depth = 0

    @override
    def forward(self, x):
        if x.dtype is not torch.float32:
            raise UnsupportedInput(f"float32 is wanted, not {x.dtype}")
        assert x.dim() == 2, "rows and columns"
        try:
            self.depth += 1
            y = torch.empty_like(x)
            cpu_extension.run(x, y)
        except RuntimeError as error:
            raise UnsupportedInput("the kernel refused its arguments") from error
        finally:
            self.depth -= 1
        return y
