"""How inputs can be made anew without losing what a problem promises of them, told from a few draws. Runs in children.

A right kernel may rely on what all draws have in common: zeros above a diagonal, sorted rows, rows that sum to one, values
that are indices. Fresh values keep that (`ring.Way`). What is found is a guess from draws, made the same for every
submission: a structure that is none of those looked for is lost (docs/decisions/008).
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from cuda_agent.judge.compare import Scale
from cuda_agent.judge.exactness import noises
from cuda_agent.judge.problem_child import LoadedProblem, clone, same
from cuda_agent.judge.ring import Way
from cuda_agent.judge.stride import stride
from cuda_agent.judge.trees import replaced, tensors

DRAWS = 3
SAMPLE = 4_096  # elements that tell how many values there are
MOST = 2**24  # elements that are looked at
FEW = 64  # different values in a sample: labels or steps, no measurements
CERTAIN = 20.0  # natural logarithm of the odds against an order by chance
BEND, KNEE, MIXES = 1.0, 0.25, (0.5, 0.3)  # that a problem is tried with
ODD = 0.01  # of an answer's elements may be not finite by chance: a normal number in 2**24 is zero
UNLIKE = 8.0  # times as wide, or as narrow, is another domain; or times as much rounding,
CALM = 1e-5  # of the spread being nothing


def ways_of(problem: LoadedProblem, seed: int) -> list[Way]:
    """A way for each tensor of the problem's inputs: the boldest that the problem takes as it takes drawn ones."""
    draws = [problem.inputs(seed + number) for number in range(DRAWS)]
    ways = [way(column) for column in zip(*map(tensors, draws), strict=True)]
    del draws[2:]  # memory may be short
    model = problem.model(seed)
    with torch.no_grad():
        usual = [_scales(model(*clone(draw))) for draw in draws]
        noise = noises(model, draws[0])
        for tried in _ever_weaker(ways):
            if _stands(model, draws, usual, tried) and _is_calm(model, draws, noise, tried):
                break
    return tried


def way(column: Sequence[torch.Tensor]) -> Way:
    """For one tensor, drawn several times."""
    first = column[0]
    if any(other.shape != first.shape or other.dtype != first.dtype for other in column):
        return Way(False, 1)
    if not first.numel() or all(same(first, other) for other in column[1:]):
        return Way(False, 1)
    drawn = torch.stack([_cut(tensor.detach()) for tensor in column])
    if drawn.is_complex():
        drawn = torch.view_as_real(drawn.resolve_conj())
    if drawn.is_floating_point() and not bool(torch.isfinite(drawn).all()):
        return Way(False, 1)
    if _is_discrete(drawn):
        return Way(False, _places(first, _fixed(drawn), _ordered(drawn), _even(drawn.float())))
    wide = drawn if drawn.itemsize > 2 else drawn.float()
    if (norms := _even(wide.square())) is not None:
        return Way(False, _places(first, norms))  # a mix of unit vectors is shorter
    sums, orders = _even(wide), (_fixed(drawn), _ordered(drawn), _symmetric(drawn))
    bends = sums is None and any(found is not None for found in orders) and not first.is_complex()
    return Way(True, _places(first, sums, *orders), float(wide.abs().max()) if bends else 0.0)


def _places(tensor: torch.Tensor, *found: int | None) -> int:
    """How many blocks a tensor has, whose structures begin at these dimensions; its elements, if there are none."""
    begins = [begin for begin in found if begin is not None]
    if not begins:
        return tensor.numel()
    return math.prod(tensor.shape[: min(begins)]) if tensor.is_contiguous() else 1


# --- how a problem takes it -------------------------------------------------------------------------------------------------


def _ever_weaker(ways: list[Way]) -> Iterator[list[Way]]:
    """As found, then without bends, without mixing one tensor, any of them, without moving what was not mixed, as drawn."""
    yield ways
    unbent = [one._replace(limit=0.0) for one in ways]
    if unbent != ways:
        yield unbent
    unmoved = [one if one.mixes else Way(False, 1) for one in unbent]
    if unmoved != unbent:
        yield unmoved
    mixing = [number for number, one in enumerate(ways) if one.mixes]
    if len(mixing) > 1:
        yield from ([*unbent[:number], unbent[number]._replace(mixes=False), *unbent[number + 1 :]] for number in mixing)
    yield [one._replace(mixes=False) for one in unbent]
    yield [Way(False, 1)] * len(ways)


def _stands(model: torch.nn.Module, draws: Sequence[list[Any]], usual: Sequence[Sequence[Scale]], ways: Sequence[Way]) -> bool:
    """Whether the problem takes renewed inputs as it takes drawn ones: finite answers, spread about as widely as `usual`."""
    try:
        for (one, other), share in zip((draws, draws[::-1]), MIXES, strict=True):
            found = _scales(model(*_renewed(one, other, ways, share)))
            if not all(map(_is_alike, zip(*usual, strict=True), found)):
                return False
    except torch.OutOfMemoryError:
        raise
    except Exception:  # the boundary: whatever a problem raises, it does not take them
        return False
    return True


def _is_calm(model: torch.nn.Module, draws: Sequence[list[Any]], usual: Sequence[float] | None, ways: Sequence[Way]) -> bool:
    """Whether rounding does to answers to renewed inputs about what it does to drawn ones: where it rules, all passes."""
    if usual is None:
        return True
    found = noises(model, _renewed(draws[0], draws[1], ways, MIXES[0]))
    return found is not None and all(one <= UNLIKE * other + CALM for one, other in zip(found, usual, strict=True))


def _renewed(one: list[Any], other: list[Any], ways: Sequence[Way], share: float) -> list[Any]:
    pairs = zip(tensors(one), tensors(other), ways, strict=True)
    return list(replaced(one, [_changed(mine, theirs, way, share) for mine, theirs, way in pairs]))


def _changed(mine: torch.Tensor, theirs: torch.Tensor, one: Way, share: float) -> torch.Tensor:
    """As `Ring.refresh` makes a tensor, on fixed terms."""
    if not mine.numel():
        return mine
    step = mine.numel() // one.places
    mixed = mine.detach().reshape(-1).roll(step * (one.places // 3 + 1))
    if one.mixes:
        mixed = mixed.mul_(share).add_(theirs.detach().reshape(-1).roll(step * (one.places // 5 + 1)), alpha=1.0 - share)
    mixed = mixed.reshape(mine.shape)
    if one.limit:
        mixed = mixed + BEND * mixed.sign() * (mixed.abs() - KNEE * one.limit).relu()
    return mixed if mine.is_contiguous() else mine.detach().clone(memory_format=torch.preserve_format).copy_(mixed)


def _scales(answer: Any) -> list[Scale]:
    """As `compare.scales`, of live values."""
    found = [torch.view_as_real(one.resolve_conj()) if one.is_complex() else one for one in tensors(answer)]
    return [_scale(one if one.itemsize > 2 else one.float()) for one in found if one.is_floating_point() and one.numel()]


def _scale(tensor: torch.Tensor) -> Scale:
    finite = torch.isfinite(tensor)
    count = int(finite.count_nonzero())
    kept = tensor if count == tensor.numel() else tensor[finite]
    return Scale(float(kept.std(correction=0)) if count else 0.0, count / tensor.numel())


def _is_alike(usual: Sequence[Scale], found: Scale) -> bool:
    widest, narrowest = max(usual).spread, min(usual).spread
    is_as_finite = found.finite >= min(one.finite for one in usual) - ODD
    return is_as_finite and narrowest / UNLIKE <= found.spread <= UNLIKE * widest


# --- what all draws have in common: the first dimension of the blocks that have it, or None --------------------------------


def _cut(tensor: torch.Tensor) -> torch.Tensor:
    """A leading block of a tensor that is too large to be looked at whole; of square matrices a square one."""
    matrices = tensor.dim() > 1 and tensor.shape[-1] == tensor.shape[-2]
    for dimension in range(tensor.dim() - 2 * matrices):
        rest = max(1, tensor[(slice(1),) * (dimension + 1)].numel())
        tensor = tensor.narrow(dimension, 0, min(tensor.shape[dimension], max(1, MOST // rest)))
    side = math.isqrt(MOST)
    return tensor[..., :side, :side] if matrices else tensor


def _is_discrete(drawn: torch.Tensor) -> bool:
    if not drawn.is_floating_point():
        return True
    values = _sample(drawn)
    return bool((values == values.round()).all()) or (len(values) > 4 * FEW and len(_shares(values)) <= FEW)


def _sample(drawn: torch.Tensor) -> torch.Tensor:
    flat = drawn.reshape(-1)
    return flat[:: stride(len(flat), SAMPLE)]


def _shares(values: torch.Tensor) -> torch.Tensor:
    """How large a share each of the different values has."""
    counts: torch.Tensor = values.unique(return_counts=True)[1]  # type: ignore[no-untyped-call]
    return counts.double() / len(values)


def _fixed(drawn: torch.Tensor) -> int | None:
    """More elements agree in all draws than chance explains, were they drawn independently of their place."""
    agreeing = (drawn[1:] == drawn[:1]).all(0)
    expected = agreeing.numel() * float((_shares(_sample(drawn)) ** len(drawn)).sum())
    if int(agreeing.sum()) <= 1.1 * expected + 4 * math.sqrt(expected) + 2:
        return None
    for dimension in range(agreeing.dim() - 1, 0, -1):
        blocks = agreeing.reshape(-1, math.prod(agreeing.shape[dimension:]))
        if bool((blocks == blocks[:1]).all()):
            return dimension
    return 0


def _ordered(drawn: torch.Tensor) -> int | None:
    """Every row of the last dimension is sorted, one way or the other."""
    length = drawn.shape[-1] if drawn.dim() > 1 else 1
    if drawn.numel() // length * math.lgamma(length + 1) < CERTAIN:
        return None
    before, after = drawn[..., :-1], drawn[..., 1:]
    return drawn.dim() - 2 if bool((before <= after).all()) or bool((before >= after).all()) else None


def _even(wide: torch.Tensor) -> int | None:
    """Sums along a dimension hardly differ, though the elements do."""
    spread = float(_sample(wide).std())
    for dimension, length in enumerate(wide.shape[1:]):
        sums = wide.sum(dimension + 1, dtype=torch.float64)
        if length > 1 and float(sums.std()) < 0.01 * spread * math.sqrt(length):
            return dimension
    return None


def _symmetric(drawn: torch.Tensor) -> int | None:
    """The last two dimensions are those of symmetric matrices."""
    if drawn.dim() < 3 or drawn.shape[-1] != drawn.shape[-2] or drawn.shape[-1] < 3:
        return None
    return drawn.dim() - 3 if torch.allclose(drawn, drawn.mT, rtol=1e-5, atol=0.0) else None
