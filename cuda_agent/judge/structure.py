"""How inputs can be made anew without losing what a problem promises of them, told from a few draws. Runs in children.

A right kernel may rely on what all draws have in common: zeros above a diagonal, sorted rows, rows that sum to one, values
that are indices. Fresh values keep that. What is found is a guess from draws, made the same for every submission: a structure
that is none of those looked for is lost (docs/decisions/008).
"""

import math
from collections.abc import Sequence
from typing import Any

import torch

from cuda_agent.judge.problem_child import LoadedProblem, clone, same
from cuda_agent.judge.ring import BLENDED, DRAWN, MIXED, ROLLED, Way
from cuda_agent.judge.trees import mapped, tensors

DRAWS = 3
SAMPLE = 4_096  # elements that tell how many values there are
MOST = 2**24  # elements that are looked at
FEW = 64  # different values in a sample: labels or steps, no measurements
CERTAIN = 20.0  # natural logarithm of the odds against an order by chance


def ways_of(problem: LoadedProblem, seed: int) -> list[Way]:
    """A way for each tensor of the problem's inputs; none is rolled with which the problem fails or gives infinities."""
    draws = [problem.inputs(seed + number) for number in range(DRAWS)]
    ways = [way(column) for column in zip(*map(tensors, draws), strict=True)]
    if ROLLED in ways and not _stands(problem.model(seed), draws[0], ways):
        ways = [DRAWN if found == ROLLED else found for found in ways]
    return ways


def way(column: Sequence[torch.Tensor]) -> Way:
    """For one tensor, drawn several times."""
    first = column[0]
    if any(other.shape != first.shape or other.dtype != first.dtype for other in column):
        return DRAWN
    if not first.numel() or all(same(first, other) for other in column[1:]):
        return DRAWN
    drawn = torch.stack([_cut(tensor.detach()) for tensor in column])
    if drawn.is_complex():
        drawn = torch.view_as_real(drawn.resolve_conj())
    if drawn.is_floating_point() and not bool(torch.isfinite(drawn).all()):
        return DRAWN
    if _is_discrete(drawn):
        return DRAWN if _has_fixed_places(drawn) or _is_ordered(drawn) or _sums_are_constant(drawn.float()) else ROLLED
    wide = drawn if drawn.itemsize > 2 else drawn.float()
    if _sums_are_constant(wide.square()):
        return DRAWN  # a mix of unit vectors is shorter
    structured = _has_fixed_places(drawn) or _is_ordered(drawn) or _sums_are_constant(wide) or _is_symmetric(drawn)
    return BLENDED if structured else MIXED


def _cut(tensor: torch.Tensor) -> torch.Tensor:
    """A leading block of a tensor that is too large to be looked at whole; of square matrices a square one."""
    matrices = tensor.dim() > 1 and tensor.shape[-1] == tensor.shape[-2]
    for dimension in range(tensor.dim() - 2 * matrices):
        rest = max(1, tensor[(slice(1),) * (dimension + 1)].numel())
        tensor = tensor.narrow(dimension, 0, min(tensor.shape[dimension], max(1, MOST // rest)))
    side = math.isqrt(MOST)
    return tensor[..., :side, :side] if matrices else tensor


def _stands(model: torch.nn.Module, inputs: list[Any], ways: Sequence[Way]) -> bool:
    """Whether the problem takes rolled indices as it takes drawn ones."""
    numbers = iter(ways)
    rolled = mapped(clone(inputs), lambda tensor: _rolled(tensor) if next(numbers) == ROLLED else tensor)
    with torch.no_grad():
        if not _is_finite(model(*clone(inputs))):
            return True  # nor does it give finite answers as drawn
        try:
            return _is_finite(model(*rolled))
        except Exception:  # the boundary: whatever a problem raises, it does not take them
            return False


def _rolled(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).roll(tensor.numel() // 3 + 1).reshape(tensor.shape)


def _is_finite(value: Any) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors(value))


def _is_discrete(drawn: torch.Tensor) -> bool:
    if not drawn.is_floating_point():
        return True
    values = _sample(drawn)
    return bool((values == values.round()).all()) or (len(values) > 4 * FEW and len(_shares(values)) <= FEW)


def _sample(drawn: torch.Tensor) -> torch.Tensor:
    flat = drawn.reshape(-1)
    return flat[:: -(-len(flat) // SAMPLE)]


def _shares(values: torch.Tensor) -> torch.Tensor:
    """How large a share each of the different values has."""
    counts: torch.Tensor = values.unique(return_counts=True)[1]  # type: ignore[no-untyped-call]
    return counts.double() / len(values)


def _has_fixed_places(drawn: torch.Tensor) -> bool:
    """Whether more elements agree in all draws than chance explains, were they drawn independently of their place."""
    places = drawn[0].numel()
    agreeing = int((drawn[1:] == drawn[:1]).all(0).sum())
    expected = places * float((_shares(_sample(drawn)) ** len(drawn)).sum())
    return agreeing > 1.1 * expected + 4 * math.sqrt(expected) + 2


def _is_ordered(drawn: torch.Tensor) -> bool:
    """Whether every row of the last dimension is sorted, one way or the other."""
    length = drawn.shape[-1] if drawn.dim() > 1 else 1
    if drawn.numel() // length * math.lgamma(length + 1) < CERTAIN:
        return False
    before, after = drawn[..., :-1], drawn[..., 1:]
    return bool((before <= after).all()) or bool((before >= after).all())


def _sums_are_constant(wide: torch.Tensor) -> bool:
    """Whether sums along one of the dimensions hardly differ, though the elements do."""
    spread = float(_sample(wide).std())
    for dimension, length in enumerate(wide.shape[1:], 1):
        if length > 1 and float(wide.sum(dimension, dtype=torch.float64).std()) < 0.01 * spread * math.sqrt(length):
            return True
    return False


def _is_symmetric(drawn: torch.Tensor) -> bool:
    if drawn.dim() < 3 or drawn.shape[-1] != drawn.shape[-2] or drawn.shape[-1] < 3:
        return False
    return torch.allclose(drawn, drawn.mT, rtol=1e-5, atol=0.0)
