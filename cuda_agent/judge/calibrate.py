"""Whether a problem can tell right from wrong: its reference answers, held against answers that take no work.

Zeros, one constant, a copy of an input and the answer to other inputs must differ from the reference by more than the
tolerance. Pure, on packed values, wherever they are; the judge asks `fault` once per problem and calls a problem that
cannot tell `problem_invalid`. Vetting asks `weakness`, which is stricter: each single output must tell, and one row is no
answer for all.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cuda_agent.judge.compare import Exact, difference
from cuda_agent.judge.memory import TYPES
from cuda_agent.judge.stride import stride
from cuda_agent.judge.values import Packed, leaves, widen, with_leaves

# The bits that bfloat16 keeps of one, and float32 of the other.
HALVED: dict[str, np.uint32 | np.uint64] = {"float32": np.uint32(0xFFFF0000), "float64": np.uint64(0xFFFFFFFFE0000000)}
SAMPLE = 2**16  # elements that tell a median


def fault(inputs: Sequence[Packed], outputs: Sequence[Packed], exact: Exact | None = None) -> str:
    """Why the problem cannot be judged, or an empty string, from at least two plain cases under the same weights.

    `exact` is that of the first one: what a wrong answer may profit from, too.
    """
    if not any(True for _ in leaves(outputs[0])):
        return "the reference returns no tensor"
    for name, guess in _guesses(inputs[0], outputs):
        if not difference(outputs[0], guess, exact):
            return f"the answer {name} passes: its tolerance cannot tell it from the right one"
    return ""


def weakness(inputs: Sequence[Packed], outputs: Sequence[Packed], exact: Exact | None = None) -> str:
    """`fault`, asked of each output by itself as well, and whether one row passes for all; the same arguments."""
    if found := fault(inputs, outputs, exact):
        return found
    told = None if exact is None else list(zip(leaves(exact.truth), leaves(exact.slack), strict=True))
    singles = list(zip(*(list(leaves(output)) for output in outputs), strict=False))
    for number, single in enumerate(singles):
        where = f" for output {number}" if len(singles) > 1 else ""
        for name, guess in _weak_guesses(inputs[0], single, several=len(singles) > 1):
            if not difference(single[0], guess, None if told is None else Exact(*told[number])):
                return f"the answer {name} passes{where}: its tolerance cannot tell it from the right one"
    return ""


def _weak_guesses(inputs: Packed, single: Sequence[Packed], *, several: bool) -> Iterator[tuple[str, Packed]]:
    right = single[0]
    for name, guess in _guesses(inputs, single) if several else ():
        if name != "one constant" or np.size(right[3]) > 1:  # one number is its own mean
            yield name, guess
    if len(right[2]) > 1 and right[2][0] > 1:
        yield "the mean row", _averaged(right)


def _averaged(leaf: Packed) -> Packed:
    """The mean over the first dimension in place of every row."""
    mean = widen(leaf[1], leaf[3]).mean(0, keepdims=True)
    return _holding(leaf, np.broadcast_to(mean if leaf[1].startswith("complex") else mean.real, leaf[3].shape))


def _guesses(inputs: Packed, outputs: Sequence[Packed]) -> Iterator[tuple[str, Packed]]:
    right = outputs[0]
    yield "zeros", with_leaves(right, (_filled(leaf, 0.0) for leaf in leaves(right)))
    yield "one constant", with_leaves(right, (_filled(leaf, _mean(leaf)) for leaf in leaves(right)))
    for other in outputs[1:2]:
        yield "to other inputs", other
    for leaf in leaves(inputs):
        if right[0] == "tensor" and leaf[1:3] == right[1:3]:
            yield "a copy of an input", leaf
    for name, share in (("with its smaller half", 0.5), ("with all of it", 1.0)):
        coarse = [_coarse(leaf, share) for leaf in leaves(right)]
        if any(leaf is not rounded for leaf, rounded in zip(leaves(right), coarse, strict=True)):
            yield f"{name} in half precision", with_leaves(right, iter(coarse))


def _coarse(leaf: Packed, share: float) -> Packed:
    """The smaller ones of what is not zero cut to half precision: neither a few huge numbers nor rounding may free all of them.

    The leaf itself where that changes nothing.
    """
    if leaf[1] not in HALVED or not np.prod(leaf[2]):
        return leaf
    kept = HALVED[leaf[1]]
    array = np.ascontiguousarray(leaf[3] if isinstance(leaf[3], np.ndarray) else leaf[3].host()).reshape(leaf[2])
    sizes = np.abs(array)
    some = sizes.reshape(-1)[:: stride(sizes.size, SAMPLE)]
    small = sizes < (np.quantile(some[some > 0], share) if (some > 0).any() else 0.0)
    cut = np.where(small, (array.view(kept.dtype) & kept).view(array.dtype), array)
    if np.array_equal(cut, array, equal_nan=True):
        return leaf
    return [*leaf[:3], cut if isinstance(leaf[3], np.ndarray) else leaf[3].of(leaf[3].kernels, cut), leaf[4]]


def _mean(leaf: Packed) -> float:
    if not isinstance(leaf[3], np.ndarray):
        return float(leaf[3].mean(leaf[1])) if leaf[1] in TYPES else _mean([*leaf[:3], leaf[3].host(), leaf[4]])
    return float(widen(leaf[1], leaf[3]).real.mean()) if np.size(leaf[3]) else 0.0


def _filled(leaf: Packed, value: float) -> Packed:
    if not isinstance(leaf[3], np.ndarray):
        one = _holding(leaf, np.full((), value))
        return [*leaf[:3], leaf[3].filled(one[3]), leaf[4]]
    return _holding(leaf, np.full(leaf[2], value))


def _holding(leaf: Packed, values: "np.ndarray[Any, Any]") -> Packed:
    """A tensor like `leaf` with other values."""
    _, dtype, shape, array = leaf[:4]
    if dtype == "bfloat16":
        bits = values.astype(np.float32).view(np.uint32) >> 16
        return ["tensor", dtype, shape, bits.astype(np.uint16), leaf[4]]
    return ["tensor", dtype, shape, values.astype(array.dtype), leaf[4]]
