"""Live values in children: tensors in nested lists, tuples and dictionaries, walked in one way."""

from collections.abc import Callable, Iterable
from typing import Any

import torch


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same containers with every tensor changed; anything else stays as it is."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    return value


def replaced(value: Any, others: Iterable[torch.Tensor]) -> Any:
    """The same containers around other tensors, in the order of `tensors`."""
    rest = iter(others)
    return mapped(value, lambda _: next(rest))


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors of a value, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for item in items for tensor in tensors(item)]
