"""Whether a problem can tell right from wrong: its reference answers, held against answers that take no work.

Zeros, one constant, a copy of an input and the answer to other inputs must differ from the reference by more than the
tolerance. Pure, on packed values, wherever they are; the judge asks `fault` once per problem and calls a problem that
cannot tell `problem_invalid`. Vetting asks `weakness`, which is stricter: each single output must tell, and one row is no
answer for all.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cuda_agent.judge.compare import RTOL, Exact, difference, scales
from cuda_agent.judge.memory import TYPES
from cuda_agent.judge.stride import stride
from cuda_agent.judge.values import Packed, leaves, widen, with_leaves

# Bits that are kept of a number by bfloat16, by float16 or TF32, and of a wide one by float32.
Bits = dict[str, np.uint32 | np.uint64]
COARSE: Bits = {"float32": np.uint32(0xFFFF0000), "float64": np.uint64(0xFFFFFFFFE0000000)}
HALF: Bits = {"float32": np.uint32(0xFFFFE000), "float64": np.uint64(0xFFFFFFFFE0000000)}
SAMPLE = 2**16  # elements that tell a median
LOOSE, FEW_LOOSE = 4.0, 0.03  # times the tolerance, which half precision stays within; a share of an answer's elements
SLICES, LEAST_SLICE = 8, 16  # one in so many slices of so many elements at least
Guesses = tuple[str, Sequence[Packed]]  # which pass if all of them do


def fault(inputs: Sequence[Packed], outputs: Sequence[Packed], exact: Exact | None = None) -> str:
    """Why the problem cannot be judged, or an empty string, from at least two plain cases under the same weights.

    `exact` is that of the first one: what a wrong answer may profit from, too.
    """
    if not any(True for _ in leaves(outputs[0])):
        return "the reference returns no tensor"
    for name, guesses in (*_guesses(inputs[0], outputs), *_halves(outputs[0], exact)):
        if not any(difference(outputs[0], guess, exact) for guess in guesses):
            return f"the answer {name} passes: its tolerance cannot tell it from the right one"
    return ""


def weakness(inputs: Sequence[Packed], outputs: Sequence[Packed], exact: Exact | None = None) -> str:
    """`fault`, asked of each output by itself as well, and whether one row passes for all; the same arguments."""
    if found := fault(inputs, outputs, exact):
        return found
    told = None if exact is None else [Exact(*pair) for pair in zip(leaves(exact.truth), leaves(exact.slack), strict=True)]
    singles = list(zip(*(list(leaves(output)) for output in outputs), strict=False))
    for number, single in enumerate(singles):
        where = f" for output {number}" if len(singles) > 1 else ""
        known = None if told is None else told[number]
        for name, guesses in _weak_guesses(inputs[0], single, known, several=len(singles) > 1):
            if not any(difference(single[0], guess, known) for guess in guesses):
                return f"the answer {name} passes{where}: its tolerance cannot tell it from the right one"
    return ""


def _weak_guesses(inputs: Packed, single: Sequence[Packed], exact: Exact | None, *, several: bool) -> Iterator[Guesses]:
    right = single[0]
    for name, guesses in (*_guesses(inputs, single), *_halves(right, exact)) if several else ():
        if name != "one constant" or np.size(right[3]) > 1:  # one number is its own mean
            yield name, guesses
    if len(right[2]) > 1 and right[2][0] > 1:
        yield "the mean row", [_averaged(right)]


def _averaged(leaf: Packed) -> Packed:
    """The mean over the first dimension in place of every row."""
    mean = widen(leaf[1], leaf[3]).mean(0, keepdims=True)
    return _holding(leaf, np.broadcast_to(mean if leaf[1].startswith("complex") else mean.real, leaf[3].shape))


def _guesses(inputs: Packed, outputs: Sequence[Packed]) -> Iterator[Guesses]:
    right = outputs[0]
    yield "zeros", [with_leaves(right, (_filled(leaf, 0.0) for leaf in leaves(right)))]
    yield "one constant", [with_leaves(right, (_filled(leaf, _mean(leaf)) for leaf in leaves(right)))]
    if len(outputs) > 1:
        yield "to other inputs", outputs[1:]  # one alone may pass by luck
    for leaf in leaves(inputs):
        if right[0] == "tensor" and leaf[1:3] == right[1:3]:
            yield "a copy of an input", [leaf]


def _halves(right: Packed, exact: Exact | None) -> Iterator[Guesses]:
    """Half precision, where nobody may see it: a few huge numbers must not free all others, nor may rounding."""
    wanted = list(leaves(right))
    guesses = [("with its smaller half in half precision", [_cut(leaf, _is_small(_array(leaf)), COARSE) for leaf in wanted])]
    if exact is not None:
        loose = [_loose(leaf, _array(slack)) for leaf, slack in zip(wanted, leaves(exact.slack), strict=True)]
        halves = [_cut(leaf, chosen, HALF) for leaf, chosen in zip(wanted, loose, strict=True)]
        guesses.append(("in half precision where rounding hides that", halves))
    for number, leaf in enumerate(wanted):
        for chosen in _small_places(_array(leaf)) if leaf[1] in COARSE else ():
            told = [_cut(leaf, chosen, COARSE) if place == number else other for place, other in enumerate(wanted)]
            guesses.append((f"with one in {SLICES} rows or columns in half precision", told))
    for name, cut in guesses:
        if any(leaf is not other for leaf, other in zip(wanted, cut, strict=True)):
            yield name, [with_leaves(right, iter(cut))]


def _cut(leaf: Packed, chosen: Any, bits: Bits) -> Packed:
    """The chosen elements with these bits alone; the leaf itself where that changes nothing."""
    if leaf[1] not in bits or not np.prod(leaf[2]):
        return leaf
    array, kept = _array(leaf), bits[leaf[1]]
    cut = np.where(chosen, (array.view(kept.dtype) & kept).view(array.dtype), array)
    if np.array_equal(cut, array, equal_nan=True):
        return leaf
    return [*leaf[:3], cut if isinstance(leaf[3], np.ndarray) else leaf[3].of(leaf[3].kernels, cut), leaf[4]]


def _is_small(array: Any) -> Any:
    """Which elements are in the smaller half of those that are not zero."""
    sizes = np.abs(array)
    some = sizes.reshape(-1)[:: stride(sizes.size, SAMPLE)]
    return sizes < (np.median(some[some > 0]) if (some > 0).any() else 0.0)


def _small_places(array: Any) -> Iterator[Any]:
    """By dimension, the slices of smallest values, one in SLICES: who knows by their place which they are need not look."""
    sizes = np.where(np.isfinite(array), np.abs(array), 0.0)
    for axis, length in enumerate(array.shape):
        if length < SLICES or array.size < LEAST_SLICE * length:
            continue
        largest = sizes.max(axis=tuple(other for other in range(array.ndim) if other != axis))
        filled = np.sort(largest[largest > 0])
        if filled.size >= SLICES:
            chosen = (largest > 0) & (largest <= filled[filled.size // SLICES - 1])
            yield chosen.reshape([length if other == axis else 1 for other in range(array.ndim)])


def _loose(leaf: Packed, slack: Any) -> Any:
    """Which elements rounding frees, so that half precision passes there; none if they are few, as near jumps."""
    if leaf[1] not in HALF or not slack.size:
        return np.zeros(slack.shape, bool)
    array = _array(leaf)
    loose = slack > LOOSE * RTOL[leaf[1]] * (scales(leaf)[0].spread + np.abs(array))
    return loose if loose.mean() > FEW_LOOSE else np.zeros(slack.shape, bool)


def _array(leaf: Packed) -> Any:
    return np.ascontiguousarray(leaf[3] if isinstance(leaf[3], np.ndarray) else leaf[3].host()).reshape(leaf[2])


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
