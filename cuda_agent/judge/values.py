"""Tensors and containers of tensors on their way between processes: trees of tagged lists that JSON and raw buffers carry.

`pack` and `unpack` run in children (they import torch); the judge itself only ever sees the packed form. A packed value is
["tensor", dtype, shape, array], ["list" | "tuple", [items]], ["dict", [[key, item], ...]] or ["scalar", value]; bfloat16
travels as uint16 bits. Anything else cannot be compared and raises TypeError.
"""

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
        return ["tensor", str(value.dtype).removeprefix("torch."), list(value.shape), _array(value)]
    if type(value) in (list, tuple):
        return [type(value).__name__, [pack(item) for item in value]]
    if type(value) is dict:
        return ["dict", [[str(key), pack(item)] for key, item in value.items()]]
    if value is None or type(value) in (bool, int, float, str):
        return ["scalar", value]
    if isinstance(value, torch.dtype):
        return ["dtype", str(value).removeprefix("torch.")]
    raise TypeError(f"{type(value).__name__} cannot be compared; return tensors in lists, tuples or dictionaries")


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
        _, dtype, shape, array = packed
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
