"""Measures on live values of a problem in its child: samples to compare at the judge's tolerance, spreads, other draws.

A comparison is the judge's own (`judge.compare`) on packed values; of large tensors it sees evenly spaced slices, for its
float64 copies would cost more time and memory than the problem itself.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from cuda_agent.judge.compare import difference
from cuda_agent.judge.stride import prime_from
from cuda_agent.judge.trees import mapped, tensors
from cuda_agent.judge.values import Packed, check_dense, pack

COARSE, FINE = 2**15, 2**20  # elements that a comparison sees of a tensor
# What sums in another order may change, in standard deviations: float32 in thousands of additions 1e-6 or so of all elements,
# a narrow type the last bit of some. A choice of another element (a scatter onto one place) changes whole elements.
REORDERED_MEAN, REORDERED_MOST = 1e-5, 1e-2
Facts = dict[str, Any]


class Incomparable(Exception):
    """A value that the judge could not compare, or not hand over."""


def packed(value: Any, place: Callable[[Any], Any] | None = None) -> Packed:
    """The value as the judge packs it (`values.pack`); tensors are not copied where that can be avoided.

    Raises:
        Incomparable: it holds what is neither tensor, number, string nor plain container.
    """
    try:
        return pack(value, place)
    except TypeError as error:
        raise Incomparable(str(error)) from error


def check_comparable(value: Any) -> None:
    """See that the judge could pack a value, without copying anything; raises as `packed`."""
    packed(value, check_dense)


def sample(value: Any, most: int = COARSE) -> Packed:
    """The value packed, each tensor thinned to at most `most` elements; equal shapes are thinned alike.

    Raises:
        Incomparable: as for `packed`.
    """
    check_comparable(value)
    return packed(mapped(value, lambda tensor: _thinned(tensor, most)))


def _thinned(tensor: torch.Tensor, most: int) -> torch.Tensor:
    if tensor.numel() <= most:
        return tensor
    steps = [1] * tensor.dim()
    left = list(tensor.shape)
    while math.prod(left) > most:
        longest = max(range(len(left)), key=left.__getitem__)
        steps[longest] = prime_from(2 * steps[longest])
        left[longest] = -(-tensor.shape[longest] // steps[longest])
    return tensor.detach()[tuple(slice(None, None, step) for step in steps)]


def alike(expected: Packed, value: Any) -> bool:
    """Whether a value passes for the sampled one at the judge's tolerance."""
    try:
        return not difference(expected, sample(value))
    except Incomparable:
        return False


def reordered(one: Any, other: Any) -> bool:
    """Whether two answers, of equal form, differ by no more than the order in which floats were summed."""
    return all(_reordered(*pair) for pair in zip(tensors(one), tensors(other), strict=True))


def _reordered(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or not is_float(one):
        return torch.equal(one, other)
    off, unit = (real(one) - real(other)).abs(), spread(one)
    return not off.numel() or (float(off.mean()) <= REORDERED_MEAN * unit and float(off.max()) <= REORDERED_MOST * unit)


def is_float(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds real or complex numbers."""
    return tensor.is_floating_point() or tensor.is_complex()


def real(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as real numbers in float32 or float64: complex ones by parts."""
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.double()


def spread(tensor: torch.Tensor) -> float:
    """Standard deviation; 0 of an empty tensor."""
    return float(real(tensor).std(correction=0)) if tensor.numel() else 0.0


def apart(left: torch.Tensor, right: torch.Tensor) -> float:
    """Mean absolute difference."""
    return float((real(left) - real(right)).abs().mean()) if left.numel() else 0.0


def finite(value: Any) -> bool:
    """Whether all numbers in a value's tensors are finite."""
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors(value) if is_float(tensor))


def commonest_share(tensor: torch.Tensor) -> float:
    """The share of elements that equal the commonest one, exact where it is more than half: the median is that one then."""
    flat = real(tensor).reshape(-1)
    middle = flat[:: max(1, flat.numel() // FINE)].median()
    return float((flat == middle).double().mean())


def shapes(value: Any) -> list[list[Any]]:
    """Dtype and sizes of each tensor of a value."""
    return [[str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for tensor in tensors(value)]


def size_in_bytes(value: Any) -> int:
    """Bytes of a value's tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors(value))


def redrawn(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Other values of the same kind: signs and ranges mostly kept, and valid indices stay valid."""
    generator = torch.Generator(tensor.device).manual_seed(seed)
    rolled = tensor.reshape(-1).roll(tensor.numel() // 3 + 1).reshape(tensor.shape)
    if tensor.dtype == torch.bool:
        return ~tensor
    if not is_float(tensor):
        return rolled if not torch.equal(rolled, tensor) else tensor + 1
    kind = tensor.real.dtype if tensor.is_complex() else tensor.dtype
    noise = torch.rand(tensor.shape, generator=generator, device=tensor.device).to(kind) + 0.5
    return rolled * noise if spread(tensor) > 0 else tensor + noise


def ratio(part: float, whole: float) -> float:
    """`part / whole`, 0 for nothing of nothing."""
    if whole > 0:
        return part / whole
    return 0.0 if part == 0 else math.inf


def number(value: float) -> float | None:
    """A finite number, or None."""
    return float(value) if math.isfinite(value) else None
