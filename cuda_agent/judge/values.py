"""Tensors and containers of tensors on their way between processes: trees of tagged lists that JSON and raw buffers carry.

`pack` and `unpack` run in children (they import torch); the judge itself only ever sees the packed form. A packed value is
["tensor", dtype, shape, array, strides], ["list" | "tuple", [items]], ["dict", [[key, item], ...]] or ["scalar", value].
Strides count elements and are those of the original tensor: the array itself is contiguous. bfloat16 travels as uint16
bits. Anything else cannot be compared and raises TypeError.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

Packed = list[Any]


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
    if kind == "tensor":
        return next(replaced)
    if kind in ("list", "tuple"):
        return [kind, [with_leaves(item, replaced) for item in packed[1]]]
    if kind == "dict":
        return ["dict", [[key, with_leaves(item, replaced)] for key, item in packed[1]]]
    return packed


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
