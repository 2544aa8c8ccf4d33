"""Tensors and containers of tensors on their way between processes: trees of tagged lists that JSON and raw buffers carry.

`pack` and `unpack` run in children (they import torch); the judge itself only ever sees the packed form. A packed value is
["tensor", dtype, shape, array, strides], ["list" | "tuple", [items]], ["dict", [[key, item], ...]] or ["scalar", value].
Strides count elements and are those of the original tensor: the array itself is contiguous. bfloat16 travels as uint16
bits. Anything else cannot be compared and raises TypeError.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Packed = list[Any]
MOST_BYTES = 8 * 2**30  # of one tensor


def pack(value: Any) -> Packed:
    """Pack a value for the wire; tensors are copied to the CPU, contiguous.

    Raises:
        TypeError: it holds something that is neither tensor, number, string nor plain container.
    """
    import torch

    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return ["tensor", type_name(value), list(value.shape), _array(value), list(value.stride())]
    if type(value) in (list, tuple):
        return [type(value).__name__, [pack(item) for item in value]]
    if type(value) is dict:
        return ["dict", [[str(key), pack(item)] for key, item in value.items()]]
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
    """In a child: the same with addresses in place of arrays, whose memory `keep` holds from now on; see `brought`."""
    tensors = list(leaves(packed))
    keep += [leaf[3] for leaf in tensors]
    return with_leaves(packed, ([*leaf[:3], [leaf[3].ctypes.data, leaf[3].nbytes], leaf[4]] for leaf in tensors))


def brought(packed: Packed, read: Callable[[int, "np.ndarray[Any, Any]"], None]) -> Packed:
    """In the judge: what `held` left in the child, read into arrays of this process.

    Raises:
        ValueError, TypeError: it was not made by `held`.
    """
    return with_leaves(packed, (_brought(leaf, read) for leaf in leaves(packed)))


def _brought(leaf: Packed, read: Callable[[int, "np.ndarray[Any, Any]"], None]) -> Packed:
    _, dtype, shape, (address, size), strides = leaf
    kind = storage_type(dtype)
    if math.prod(shape) * kind.itemsize != size or size > MOST_BYTES or len(strides) != len(shape):
        raise ValueError("a tensor does not fill its memory")
    array = np.empty(shape, kind)
    if size:
        read(int(address), array.reshape(-1).view(np.uint8))
    return ["tensor", dtype, shape, array, strides]


def storage_type(dtype: str) -> "np.dtype[Any]":
    """The numpy type that a tensor's bytes are held in."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)


def _array(tensor: Any) -> Any:
    import torch

    plain = tensor.detach().to("cpu", copy=False).contiguous()
    if plain.layout != torch.strided or plain.is_quantized:
        raise TypeError("only dense tensors can be compared")
    if plain.dtype == torch.bfloat16:
        return plain.view(torch.uint16).numpy()
    return plain.resolve_conj().resolve_neg().numpy()


def unpack(packed: Packed) -> Any:
    """Rebuild a packed value with tensors that own their memory."""
    import torch

    kind = packed[0]
    if kind == "tensor":
        dtype, shape, array = packed[1:4]
        tensor = torch.from_numpy(np.array(array)).reshape(shape)
        return tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor
    if kind in ("list", "tuple"):
        items = [unpack(item) for item in packed[1]]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {key: unpack(item) for key, item in packed[1]}
    if kind == "dtype":
        return getattr(torch, packed[1])
    return packed[1]


def widen(dtype: str, array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """A packed tensor's values as float64 (complex128 for complex types)."""
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.complex128 if dtype.startswith("complex") else np.float64)
