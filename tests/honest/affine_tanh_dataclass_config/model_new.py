from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Callable, ClassVar, NamedTuple

import torch
import torch.nn as nn
import cpu_extension as kernels


class Affine(NamedTuple):
    scale: float
    shift: float


@dataclass(frozen=True)
class Launch:
    affine: Affine = Affine(0.5, 0.1)
    bound: float = field(default_factory=lambda: 9 / 10)
    gain: float = 1.5

    def __post_init__(self):
        if not math.isfinite(self.bound):
            raise ValueError("the bound must be finite")


def _like(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


class ModelNew(nn.Module):
    launch: ClassVar[Launch] = Launch()
    allocate: Callable = staticmethod(_like)

    def __init__(self):
        super().__init__()
        self._run = functools.partial(kernels.run)

    @property
    def arguments(self):
        return (*self.launch.affine, self.launch.bound, self.launch.gain)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        finish = lambda out: (self._run(x, out, *self.arguments), out)[1]  # noqa: E731
        return finish(self.allocate(x))
