"""Variants of drawn inputs that a right answer must survive: other signs, other scales, ties. Runs in the reference child.

A variant touches floating-point tensors only and is a function of the drawn inputs and a seed. Where the reference itself
has no finite answer to a variant, nobody is asked it.
"""

import itertools
from collections.abc import Callable
from typing import Any

import torch

from cuda_agent.judge.trees import mapped, tensors

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


def applied(variant: str, inputs: Any, seed: int) -> Any:
    """Inputs under a variant; strides are kept."""
    if variant == PLAIN:
        return inputs
    seeds = itertools.count(seed)
    return mapped(inputs, lambda tensor: _changed(tensor, VARIANTS[variant], next(seeds)))


def has_floats(inputs: Any) -> bool:
    """Whether any of the inputs is a floating-point tensor."""
    return any(tensor.is_floating_point() for tensor in tensors(inputs))


def _changed(tensor: torch.Tensor, change: Any, seed: int) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    generator = torch.Generator(tensor.device).manual_seed(seed)
    return tensor.detach().clone(memory_format=torch.preserve_format).copy_(change(tensor.detach(), generator))
