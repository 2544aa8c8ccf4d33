"""Whether a candidate's outputs are the reference's: pure, on packed values, in numpy or by the GPU's kernels where they lie.

Structure, types, dtypes and shapes must be equal. An element may be off by

    rtol(dtype) * (spread + |expected|) + slack

where the spread is the standard deviation of the expected output and the slack what rounding may do to this element
(`exactness`): zeros, the mean, another input's output and a half-precision shortcut on a float32 task fail; another order of
summation passes. Where the slack is more than the tolerance, as near jumps, a right answer may now and then jump where nothing
foretold it: one in STRAYS of as many elements, and no more than MOST_STRAYS, may be off by the largest slack. Integers and
booleans must be equal, but for those between which rounding decides.

What passes without the float64 reference passes with it (its distance from the reference is within the slack), so callers
compute it only for outputs that fail without.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from cuda_agent.judge.values import Packed, leaves, widen

RTOL = {"float64": 1e-10, "float32": 1e-4, "complex64": 1e-4, "complex128": 1e-10, "float16": 2e-3, "bfloat16": 1.6e-2}
STRAYS, MOST_STRAYS = 256, 16


class Exact(NamedTuple):
    """The reference in float64, and each element's slack in float32; both packed like the expected output."""

    truth: Packed
    slack: Packed


class Leaf(NamedTuple):
    """What is known of one expected tensor besides itself: its exact values and slack, and the most that its spread counts."""

    truth: Packed | None = None
    slack: Packed | None = None
    most: float = np.inf


def difference(
    expected: Packed, got: Any, exact: Exact | None = None, where: str = "output", spreads: Sequence[float] | None = None
) -> str:
    """The first difference in words, or an empty string; `exact` where it could be had, `spreads` bounds each tensor's.

    A malformed `got` is a difference too: nothing in it is believed.

    Raises:
        ValueError: `exact` has another form than what is expected.
    """
    return _difference(expected, got, _told(expected, exact, spreads), where)


class Scale(NamedTuple):
    """Of a tensor's elements: the standard deviation of the finite ones, and how large a share those are."""

    spread: float
    finite: float


def scales(packed: Packed) -> list[Scale]:
    """Of each floating-point tensor; what is none has no spread and is finite."""
    return [_scale(leaf[1], leaf[3]) if leaf[1] in RTOL and math.prod(leaf[2]) else Scale(0.0, 1.0) for leaf in leaves(packed)]


def _scale(dtype: str, array: Any) -> Scale:
    if not isinstance(array, np.ndarray) and not dtype.startswith("complex"):
        found = array.spread(dtype)
        return Scale((found.squares / max(1, found.finite)) ** 0.5, found.finite / array.size)
    values = widen(dtype, array if isinstance(array, np.ndarray) else array.host())
    finite = np.isfinite(values)
    return Scale(float(values[finite].std()) if finite.any() else 0.0, float(finite.mean()))


def _told(expected: Packed, exact: Exact | None, spreads: Sequence[float] | None) -> Iterator[Leaf]:
    """What is known of each tensor, in order."""
    wanted = list(leaves(expected))
    mosts = [np.inf] * len(wanted) if spreads is None else spreads
    if exact is None:
        return iter([Leaf(most=most) for most in mosts])
    told = [Leaf(*found) for found in zip(leaves(exact.truth), leaves(exact.slack), mosts, strict=True)]
    forms = [(leaf.truth[2], leaf.slack[2], leaf.slack[1]) for leaf in told if leaf.truth and leaf.slack]
    if forms != [(leaf[2], leaf[2], "float32") for leaf in wanted]:
        raise ValueError("the exact answer has another form")
    return iter(told)


def _difference(expected: Packed, got: Any, told: Iterator[Leaf], where: str) -> str:
    if not isinstance(got, list) or len(got) < 2 or got[0] != expected[0]:
        kind = got[0] if isinstance(got, list) and got and isinstance(got[0], str) else type(got).__name__
        return f"{where}: expected a {expected[0]}, got {kind:.40}"
    kind = expected[0]
    if kind == "tensor":
        return _tensor_difference(expected, got, next(told), where)
    if kind in ("list", "tuple"):
        return _items_difference(enumerate(expected[1]), got[1], told, where)
    if kind == "dict":
        if [pair[0] for pair in expected[1]] != [pair[0] for pair in got[1] if isinstance(pair, list) and len(pair) == 2]:
            return f"{where}: the dictionary's keys differ"
        return _items_difference(((key, item) for key, item in expected[1]), [pair[1] for pair in got[1]], told, where)
    return (
        ""
        if expected[1] == got[1] or (expected[1] != expected[1] and got[1] != got[1])
        else f"{where}: expected {expected[1]!r:.60}, got {got[1]!r:.60}"
    )


def _items_difference(expected: Any, got: Any, told: Iterator[Leaf], where: str) -> str:
    pairs = list(expected)
    if not isinstance(got, list) or len(pairs) != len(got):
        return f"{where}: expected {len(pairs)} items, got {len(got) if isinstance(got, list) else 'none'}"
    for (name, item), other in zip(pairs, got, strict=True):
        if found := _difference(item, other, told, f"{where}[{name}]"):
            return found
    return ""


def _tensor_difference(expected: Packed, got: Packed, told: Leaf, where: str) -> str:
    dtype, shape, array = expected[1:4]
    if len(got) < 4 or got[1] != dtype:
        return f"{where}: expected dtype {dtype}, got {str(got[1])[:40]}"
    if got[2] != shape:
        return f"{where}: expected shape {shape}, got {str(got[2])[:80]}"
    other = got[3]
    if type(other) is not type(array) or other.dtype != array.dtype or other.shape != array.shape:
        return f"{where}: the tensor's data is malformed"
    found = (_on_host if isinstance(array, np.ndarray) else _on_device)(dtype, array, other, told)
    return found.text(where) if found else ""


class _Found(NamedTuple):
    """What differs: how many elements of how many, where the first one is and what it holds, the largest error."""

    differing: int
    size: int
    first: list[int]
    got: Any
    expected: Any
    error: float
    allowed: str

    def text(self, where: str) -> str:
        share = f"{self.differing} of {self.size} elements differ, first at {self.first}"
        values = f"got {self.got:.6g}, expected {self.expected:.6g}"
        return f"{where}: {share}: {values}; largest error {self.error:.3g}, allowed {self.allowed}"


FINITE, EXACTLY = "finite wherever the reference is", "exactly"


def _on_host(dtype: str, array: Any, other: Any, told: Leaf) -> _Found | None:
    if dtype not in RTOL:
        wrong = array != other if told.slack is None else (array != other) & (told.slack[3].reshape(array.shape) == 0)
        return _first(wrong, np.zeros(array.shape), array, other, EXACTLY)
    if array.dtype.kind == "f" and _surely_close(array, other, RTOL[dtype], told.most):
        return None
    reference, answer = widen(dtype, array), widen(dtype, other)
    if told.truth is None or told.slack is None:
        return _float_difference(reference, answer, reference, np.zeros(()), RTOL[dtype], told.most)
    truth = np.asarray(widen(told.truth[1], told.truth[3])).reshape(reference.shape)
    slack = np.asarray(widen(told.slack[1], told.slack[3])).reshape(reference.shape)
    return _float_difference(reference, answer, truth, slack, RTOL[dtype], told.most)


def _surely_close(reference: Any, answer: Any, rtol: float, most: float) -> bool:
    """A quick test that suffices: no error is larger than what is allowed where zero is expected; NaN and infinity fail it."""
    if not reference.size:
        return True
    with np.errstate(invalid="ignore", over="ignore"):
        largest = np.abs(answer - reference).max()
        return bool(largest <= rtol * min(most, reference.std(dtype=np.float64)))


def _float_difference(reference: Any, answer: Any, truth: Any, slack: Any, rtol: float, most: float) -> _Found | None:
    finite = np.isfinite(reference)
    odd = np.where(finite, ~np.isfinite(answer), ~((answer == reference) | (np.isnan(answer) & np.isnan(reference))))
    if odd.any():
        return _first(odd, np.zeros(reference.shape), reference, answer, FINITE)
    if not finite.any():
        return None
    truth = np.where(np.isfinite(truth) & finite, truth, reference)
    with np.errstate(invalid="ignore"):
        tolerance = rtol * (min(most, float(reference[finite].std())) + np.abs(truth))
        error = np.where(finite, np.abs(answer - truth), 0.0)
    slack = np.where(finite, slack, 0.0)
    wrong = finite & (error > tolerance + slack)
    loose, far = finite & (slack > tolerance), finite & (error > tolerance + slack.max())
    if _is_stray(int(wrong.sum()), int(loose.sum()), int(far.sum())):
        return None
    return _first(wrong, error, truth, answer, tolerance + slack)


def _is_stray(wrong: int, loose: int, far: int) -> bool:
    """Whether so few are wrong, for so many whose slack is more than the tolerance; none may be off by more than any slack."""
    return not far and wrong <= min(loose // STRAYS, MOST_STRAYS)


def _first(wrong: Any, error: Any, expected: Any, got: Any, allowed: Any) -> _Found | None:
    if not wrong.any():
        return None
    index = tuple(int(axis[0]) for axis in np.nonzero(wrong)) if wrong.ndim else ()
    limit = allowed if isinstance(allowed, str) else f"{float(allowed[index]):.1e} there"
    return _Found(int(wrong.sum()), int(wrong.size), list(index), got[index], expected[index], float(np.abs(error).max()), limit)


def _on_device(dtype: str, array: Any, other: Any, told: Leaf) -> _Found | None:
    """The same by the device's own kernels; complex numbers are compared on the host."""
    if dtype not in RTOL:
        found = array.unequal(other)
        if found.wrong and told.slack is not None:
            return _on_host(dtype, array.host(), other.host(), Leaf(slack=_to_host(told.slack)))
        return _first_there(dtype, array, other, None, found.first_wrong, (found.wrong, 0.0, EXACTLY)) if found.wrong else None
    if dtype.startswith("complex"):
        return _on_host(dtype, array.host(), other.host(), Leaf(_to_host(told.truth), _to_host(told.slack), told.most))
    if told.truth is not None and told.truth[1] != "float64":
        raise ValueError("the exact answer has another form")
    truth, slack = (None if packed is None else packed[3] for packed in (told.truth, told.slack))
    found = array.differing(dtype, other, truth, slack, RTOL[dtype], told.most)
    if found.odd:
        return _first_there(dtype, array, other, None, found.first_odd, (found.odd, 0.0, FINITE))
    if _is_stray(found.wrong, found.loose, found.far):
        return None
    first = _first_there(dtype, array, other, truth, found.first_wrong, (found.wrong, found.error, ""))
    spread = min(told.most, (found.squares / found.finite) ** 0.5)
    own = 0.0 if slack is None else float(slack.element(found.first_wrong))
    return first._replace(allowed=f"{RTOL[dtype] * (spread + abs(first.expected)) + own:.1e} there")


def _to_host(packed: Packed | None) -> Packed | None:
    return None if packed is None else [*packed[:3], packed[3].host()]


def _first_there(dtype: str, array: Any, other: Any, truth: Any, first: int, told: tuple[int, float, str]) -> _Found:
    index = [int(axis) for axis in np.unravel_index(first, array.shape)]
    right = widen(dtype, array.element(first)) if truth is None else truth.element(first)
    if truth is not None and not np.isfinite(right):
        right = widen(dtype, array.element(first))
    count, error, allowed = told
    return _Found(count, array.size, index, widen(dtype, other.element(first)), right, error, allowed)
