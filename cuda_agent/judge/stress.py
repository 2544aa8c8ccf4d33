"""Variants of drawn inputs that a right answer must survive: other signs, other scales, ties. Runs in the reference child.

A variant touches floating-point tensors without a structure only (`ring.Way`) and is a function of the drawn inputs and
a seed. Where the reference itself has no finite answer to a variant, nobody is asked it.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from cuda_agent.judge.trees import mapped

PLAIN, GIVEN = "plain", "given"  # as drawn; inputs that the judge hands over


def _signs(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    flips = torch.randint(0, 2, tensor.shape, generator=generator, dtype=torch.int8, device=tensor.device)
    return tensor * (flips * 2 - 1).to(tensor.dtype)


def _large(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return tensor * 8


def _small(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return tensor / 64


def _ties(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return (tensor * 2).round() / 2


VARIANTS: dict[str, Callable[[torch.Tensor, torch.Generator], torch.Tensor]] = {
    "signs": _signs,
    "large": _large,
    "small": _small,
    "ties": _ties,
}


def applied(variant: str, inputs: Any, seed: int, free: Sequence[bool] | None = None) -> Any:
    """Inputs under a variant; strides are kept. `free` tells of each tensor whether it may be changed (default: all may)."""
    if variant == PLAIN:
        return inputs
    seeds, told = itertools.count(seed), iter(itertools.repeat(True) if free is None else free)

    def change(tensor: torch.Tensor) -> torch.Tensor:
        own = next(seeds)
        return _changed(tensor, VARIANTS[variant], own) if next(told) else tensor

    return mapped(inputs, change)


def _changed(tensor: torch.Tensor, change: Any, seed: int) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    generator = torch.Generator(tensor.device).manual_seed(seed)
    return tensor.detach().clone(memory_format=torch.preserve_format).copy_(change(tensor.detach(), generator))
