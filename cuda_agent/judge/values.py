"""Tensors and containers of tensors on their way between processes: trees of tagged lists that JSON and raw buffers carry.

`pack` and `unpack` run in children (they import torch); the judge itself only ever sees the packed form. A packed value is
["tensor", dtype, shape, array, strides], ["list" | "tuple", [items]], ["dict", [[key, item], ...]] or ["scalar", value].
Strides count elements and are those of the original tensor: the array itself is contiguous. bfloat16 travels as uint16
bits. Anything else cannot be compared and raises TypeError. In the judge on a GPU the array is a `DeviceArray`.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

Packed = list[Any]
MOST_BYTES = 8 * 2**30  # of one tensor
BOXED = "box"  # marks a tensor that lies in a shared block, in place of an address
GRAIN = 512  # tensors in a block begin at multiples of so many bytes


def pack(value: Any, place: Callable[[Any], Any] | None = None) -> Packed:
    """Pack a value for the wire; tensors are copied to the CPU, contiguous, or put where `place` says.

    Raises:
        TypeError: it holds something that is neither tensor, number, string nor plain container.
    """
    import torch

    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return ["tensor", type_name(value), list(value.shape), (place or array_of)(value), list(value.stride())]
    if type(value) in (list, tuple):
        return [type(value).__name__, [pack(item, place) for item in value]]
    if type(value) is dict:
        return ["dict", [[str(key), pack(item, place)] for key, item in value.items()]]
    if value is None or type(value) in (bool, int, float, str):
        return ["scalar", value]
    if isinstance(value, torch.dtype):
        return ["dtype", str(value).removeprefix("torch.")]
    raise TypeError(f"{type(value).__name__} cannot be compared; return tensors in lists, tuples or dictionaries")


def type_name(tensor: Any) -> str:
    """The name of a tensor's dtype without `torch.`."""
    return str(tensor.dtype).removeprefix("torch.")


def leaves(packed: Packed) -> Iterator[Packed]:
    """The packed tensors of a packed value, in order."""
    kind = packed[0]
    if kind == "tensor":
        yield packed
    elif kind in ("list", "tuple"):
        for item in packed[1]:
            yield from leaves(item)
    elif kind == "dict":
        for _, item in packed[1]:
            yield from leaves(item)


def with_leaves(packed: Packed, replaced: Iterator[Packed]) -> Packed:
    """The same structure around other tensors, one for each of `leaves`."""
    kind = packed[0]
    if kind in ("tensor", "leaf"):
        return next(replaced)
    if kind in ("list", "tuple"):
        return [kind, [with_leaves(item, replaced) for item in packed[1]]]
    if kind == "dict":
        return ["dict", [[key, with_leaves(item, replaced)] for key, item in packed[1]]]
    return packed


def held(packed: Packed, keep: list[Any]) -> Packed:
    """In a child: the same with addresses in place of arrays, whose memory `keep` holds from now on; see `brought`.

    What was placed elsewhere already is left there.
    """
    tensors = list(leaves(packed))
    keep += [leaf[3] for leaf in tensors if isinstance(leaf[3], np.ndarray)]
    return with_leaves(packed, (_held(leaf) for leaf in tensors))


def _held(leaf: Packed) -> Packed:
    array = leaf[3]
    place = [array.ctypes.data, array.nbytes] if isinstance(array, np.ndarray) else array
    return [*leaf[:3], place, leaf[4]]


class Letters(Protocol):
    """A block of a GPU's memory that a child lays tensors into (`cuda_memory.Box`)."""

    def array(self, dtype: str, shape: list[int], start: int) -> Any:
        """A copy of the tensor that begins there."""

    def lifted(self, array: "np.ndarray[Any, Any]") -> Any:
        """A copy of what came another way."""


def brought(packed: Packed, read: Callable[[int, "np.ndarray[Any, Any]"], None], box: Letters | None = None) -> Packed:
    """In the judge: what `held` left in the child, read into arrays of this process, or with a `box` into the GPU's.

    Raises:
        ValueError, TypeError: it was not made by `held`.
    """
    return with_leaves(packed, (_brought(leaf, read, box) for leaf in leaves(packed)))


def _brought(leaf: Packed, read: Callable[[int, "np.ndarray[Any, Any]"], None], box: Letters | None) -> Packed:
    _, dtype, shape, (address, size, *boxed), strides = leaf
    kind = storage_type(dtype)
    if math.prod(shape) * kind.itemsize != size or size > MOST_BYTES or len(strides) != len(shape):
        raise ValueError("a tensor does not fill its memory")
    if boxed and box is not None:
        return ["tensor", dtype, shape, box.array(dtype, shape, int(address)), strides]
    array = np.empty(shape, kind)
    if size:
        read(int(address), array.reshape(-1).view(np.uint8))
    return ["tensor", dtype, shape, array if box is None else box.lifted(array), strides]


def same_bytes(one: Packed, other: Packed) -> bool:
    """Whether the tensors of two values of one structure hold the same bytes, wherever they are."""
    pairs = zip(leaves(one), leaves(other), strict=True)
    return all(_bytes_of(mine[3], theirs[3]) for mine, theirs in pairs)


def _bytes_of(one: Any, other: Any) -> bool:
    if type(one) is type(other) and not isinstance(one, np.ndarray):
        return bool(one.same(other))
    mine, theirs = (array if isinstance(array, np.ndarray) else array.host() for array in (one, other))
    return bool(mine.tobytes() == theirs.tobytes())


def aligned(size: int) -> int:
    """Bytes up to where the next tensor in a block may begin."""
    return -(-size // GRAIN) * GRAIN


def storage_type(dtype: str) -> "np.dtype[Any]":
    """The numpy type that a tensor's bytes are held in."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)


def check_dense(tensor: Any) -> None:
    """Raises TypeError for a tensor that has not one element behind another."""
    import torch

    if tensor.layout != torch.strided or tensor.is_quantized:
        raise TypeError("only dense tensors can be compared")


def array_of(tensor: Any) -> Any:
    """A tensor's elements as a numpy array of their own or, on the CPU, in the tensor's memory.

    Raises:
        TypeError: it is not dense.
    """
    import torch

    check_dense(tensor)
    plain = tensor.detach().to("cpu", copy=False).contiguous()
    if plain.dtype == torch.bfloat16:
        return plain.view(torch.uint16).numpy()
    return plain.resolve_conj().resolve_neg().numpy()


def unpack(packed: Packed, boxed: Callable[[Packed], Any] | None = None) -> Any:
    """Rebuild a packed value with tensors that own their memory; `boxed` makes those that lie in a block."""
    import torch

    kind = packed[0]
    if kind == "tensor":
        dtype, shape, array = packed[1:4]
        if boxed is not None and isinstance(array, list):
            return boxed(packed)
        tensor = torch.from_numpy(np.array(array)).reshape(shape)
        return tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor
    if kind in ("list", "tuple"):
        items = [unpack(item, boxed) for item in packed[1]]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {key: unpack(item, boxed) for key, item in packed[1]}
    if kind == "dtype":
        return getattr(torch, packed[1])
    return packed[1]


def widen(dtype: str, array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """A packed tensor's values as float64 (complex128 for complex types)."""
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.complex128 if dtype.startswith("complex") else np.float64)
