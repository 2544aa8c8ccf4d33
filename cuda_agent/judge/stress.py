"""Variants of drawn inputs that a right answer must survive: other signs, other scales, ties. Runs in the reference child.

A variant touches floating-point tensors only and is a function of the drawn inputs and a seed. Where the reference itself
has no finite answer to a variant, nobody is asked it.
"""

from collections.abc import Callable
from typing import Any

import torch

PLAIN, GIVEN = "plain", "given"  # as drawn; inputs that the judge hands over


def _signs(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    flips = torch.randint(0, 2, tensor.shape, generator=generator, dtype=torch.int8)
    return tensor * (flips * 2 - 1).to(tensor.device, tensor.dtype)


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
    generator = torch.Generator().manual_seed(seed)
    return _mapped(inputs, lambda tensor: _changed(tensor, VARIANTS[variant], generator))


def has_floats(inputs: Any) -> bool:
    """Whether any of the inputs is a floating-point tensor."""
    if isinstance(inputs, torch.Tensor):
        return inputs.is_floating_point()
    items = inputs.values() if isinstance(inputs, dict) else inputs if isinstance(inputs, list | tuple) else ()
    return any(has_floats(item) for item in items)


def _changed(tensor: torch.Tensor, change: Any, generator: torch.Generator) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    return tensor.detach().clone(memory_format=torch.preserve_format).copy_(change(tensor.detach(), generator))


def _mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(_mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    return value
