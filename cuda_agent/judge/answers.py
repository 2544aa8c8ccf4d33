"""Answers read by the judge itself: the child only says where its tensors lie, and the judge fetches the bytes.

A child cannot know which answer will be read, nor finish one late: the judge freezes it first. What a child says about an
answer (structure, dtype, shape, strides, address) is checked against the expected one before anything is read; the
values are then whatever the process's memory holds.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from cuda_agent.judge.values import Packed, storage_type, with_leaves

SPARSEST = 64  # a strided answer may span that many times its own bytes
MOST_BYTES = 8 * 2**30


class Misplaced(Exception):
    """An answer has not the form of the expected one; the text says in what."""


class Where(NamedTuple):
    """One tensor in the child's memory; strides count elements."""

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def own(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * storage_type(self.dtype).itemsize

    @property
    def extent(self) -> int:
        """Bytes from the first element to behind the last."""
        if not math.prod(self.shape):
            return 0
        steps = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return int((1 + steps) * storage_type(self.dtype).itemsize)

    def moved(self, address: int) -> "Where":
        """The same form elsewhere."""
        return self._replace(address=address)

    def overlaps(self, start: int, size: int) -> bool:
        """Whether any of its memory lies in a block."""
        return self.address < start + size and start < self.address + self.extent


def locate(expected: Packed, described: Any, device: str = "cpu", where: str = "output") -> list[Where]:
    """Check a described answer (see `describe`) against the expected one; where its tensors lie, in order.

    Raises:
        Misplaced: any difference in structure, type, dtype, shape, or memory that is not the tensor's own.
    """
    if not isinstance(described, list) or not described or described[0] != expected[0]:
        raise Misplaced(f"{where}: expected a {expected[0]}, got {_kind(described)}")
    if expected[0] == "tensor":
        return [_tensor(expected, described, device, where)]
    if expected[0] in ("list", "tuple"):
        return list(_items([(str(n), item) for n, item in enumerate(expected[1])], described[1:], device, where))
    if expected[0] == "dict":
        pairs = described[1] if len(described) == 2 and isinstance(described[1], list) else []
        pairs = [pair for pair in pairs if isinstance(pair, list) and len(pair) == 2]
        if [key for key, _ in expected[1]] != [pair[0] for pair in pairs]:
            raise Misplaced(f"{where}: the dictionary's keys differ")
        return list(_items(expected[1], [[pair[1] for pair in pairs]], device, where))
    if len(described) != 2:
        raise Misplaced(f"{where}: its description is malformed")
    if described[1:] != expected[1:] and not (described[1] != described[1] and expected[1] != expected[1]):
        raise Misplaced(f"{where}: expected {expected[1]!r:.60}, got {described[1]!r:.60}")
    return []


def fetch(bring: Callable[[Where], Any], expected: Packed, places: Sequence[Where]) -> Packed:
    """Bring located tensors from the (frozen) child into the expected structure.

    Raises:
        ChildFailed: an address cannot be read.
    """
    tensors = (["tensor", place.dtype, list(place.shape), bring(place), list(place.strides)] for place in places)
    return with_leaves(expected, tensors)


def describe(value: Any) -> Any:
    """In the child: structure, types and places of a value, without its data.

    Raises:
        TypeError: it holds what cannot be compared.
    """
    import torch

    if type(value) in (torch.Tensor, torch.nn.Parameter):
        if value.layout != torch.strided or value.is_quantized or value.is_conj() or value.is_neg():
            raise TypeError("only plain dense tensors can be compared")
        return ["tensor", str(value.dtype)[6:], value.device.type, list(value.shape), list(value.stride()), value.data_ptr()]
    if type(value) in (list, tuple):
        return [type(value).__name__, [describe(item) for item in value]]
    if type(value) is dict:
        return ["dict", [[str(key), describe(item)] for key, item in value.items()]]
    if value is None or type(value) in (bool, int, float, str):
        return ["scalar", value]
    if isinstance(value, torch.dtype):
        return ["dtype", str(value)[6:]]
    raise TypeError(f"{type(value).__name__} cannot be compared; return tensors in lists, tuples or dictionaries")


def addresses(value: Any) -> list[int]:
    """In the child: where the tensors of a value lie, quickly."""
    if hasattr(value, "data_ptr"):
        return [value.data_ptr()]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [address for item in items for address in addresses(item)]


def _items(expected: Sequence[Sequence[Any]], described: Any, device: str, where: str) -> Iterator[Where]:
    got = described[0] if len(described) == 1 else None
    if not isinstance(got, list) or len(got) != len(expected):
        raise Misplaced(f"{where}: expected {len(expected)} items, got {len(got) if isinstance(got, list) else 'none'}")
    for (name, item), other in zip(expected, got, strict=True):
        yield from locate(item, other, device, f"{where}[{name}]")


def _tensor(expected: Packed, described: list[Any], wanted: str, where: str) -> Where:
    if len(described) != 6:
        raise Misplaced(f"{where}: the tensor's description is malformed")
    _, dtype, device, shape, strides, address = described
    if dtype != expected[1]:
        raise Misplaced(f"{where}: expected dtype {expected[1]}, got {str(dtype)[:40]}")
    if shape != expected[2] or not all(type(size) is int for size in shape):
        raise Misplaced(f"{where}: expected shape {expected[2]}, got {str(shape)[:80]}")
    if device != wanted:
        raise Misplaced(f"{where}: expected a tensor on {wanted}, got one on {str(device)[:40]}")
    numbers = [address, *strides] if isinstance(strides, list) and len(strides) == len(shape) else [None]
    if not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
        raise Misplaced(f"{where}: the tensor's description is malformed")
    place = Where(address, dtype, tuple(shape), tuple(strides))
    _check_memory(place, expected, where)
    return place


def _check_memory(place: Where, expected: Packed, where: str) -> None:
    """Each element needs memory of its own, unless the reference repeats it in the same way."""
    sparse = max(SPARSEST * place.own, place._replace(strides=tuple(expected[4])).extent)  # a view of the reference's may be, too
    if place.extent > min(MOST_BYTES, sparse) or (place.own and not place.address):
        raise Misplaced(f"{where}: its memory is not backed by the tensor's elements")
    if _overlaps(place.shape, place.strides) and not _overlaps(expected[2], expected[4]):
        raise Misplaced(f"{where}: elements share memory (an expanded tensor); return one with memory of its own")


def _overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a step along some dimension may land on what the dimensions of smaller steps cover."""
    covered = 0
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size > 1):
        if stride <= covered:
            return True
        covered += (size - 1) * stride
    return False


def gathered(read: Callable[[int, memoryview], None], place: Where) -> "np.ndarray[Any, Any]":
    """A tensor's elements, contiguous; `read` fills a buffer from an address of the child's."""
    kind = storage_type(place.dtype)
    if not place.extent:
        return np.zeros(place.shape, kind)
    flat = np.empty(place.extent // kind.itemsize, kind)
    read(place.address, flat.view(np.uint8).data)
    steps = [stride * kind.itemsize for stride in place.strides]
    return np.ascontiguousarray(np.lib.stride_tricks.as_strided(flat, place.shape, steps))


def _kind(described: Any) -> str:
    if isinstance(described, list) and described and isinstance(described[0], str):
        return f"a {described[0]:.40}"
    return type(described).__name__
