"""Whether a candidate's outputs are the reference's: pure, on packed values, in numpy or by the GPU's kernels where they lie.

Structure, types, dtypes and shapes must be equal. An element may be off by

    rtol(dtype) * (spread + |expected|) + 4 * max |reference - reference in float64|

where the spread is the standard deviation of the expected output: zeros, the mean, another input's output and a
half-precision shortcut on a float32 task fail; another order of summation passes. Integers and booleans must be equal.

What passes without the float64 reference passes with it (its distance from the reference is within the second term), so
callers compute it only for outputs that fail without.
"""

from typing import Any, NamedTuple

import numpy as np

from cuda_agent.judge.values import Packed, widen

RTOL = {"float64": 1e-7, "float32": 1e-4, "complex64": 1e-4, "complex128": 1e-7, "float16": 2e-3, "bfloat16": 1.6e-2}
ROUNDING = 4.0


def difference(expected: Packed, got: Any, exact: Packed | None = None, where: str = "output") -> str:
    """The first difference in words, or an empty string; `exact` is the reference in float64 where it could be had.

    A malformed `got` is a difference too: nothing in it is believed.
    """
    if not isinstance(got, list) or len(got) < 2 or got[0] != expected[0]:
        kind = got[0] if isinstance(got, list) and got and isinstance(got[0], str) else type(got).__name__
        return f"{where}: expected a {expected[0]}, got {kind:.40}"
    kind = expected[0]
    if kind == "tensor":
        return _tensor_difference(expected, got, exact, where)
    if kind in ("list", "tuple"):
        return _items_difference(enumerate(expected[1]), got[1], exact, where)
    if kind == "dict":
        if [pair[0] for pair in expected[1]] != [pair[0] for pair in got[1] if isinstance(pair, list) and len(pair) == 2]:
            return f"{where}: the dictionary's keys differ"
        return _items_difference(((key, item) for key, item in expected[1]), [pair[1] for pair in got[1]], exact, where)
    return (
        ""
        if expected[1] == got[1] or (expected[1] != expected[1] and got[1] != got[1])
        else f"{where}: expected {expected[1]!r:.60}, got {got[1]!r:.60}"
    )


def _items_difference(expected: Any, got: Any, exact: Packed | None, where: str) -> str:
    pairs = list(expected)
    if not isinstance(got, list) or len(pairs) != len(got):
        return f"{where}: expected {len(pairs)} items, got {len(got) if isinstance(got, list) else 'none'}"
    for number, ((name, item), other) in enumerate(zip(pairs, got, strict=True)):
        truth = None if exact is None else exact[1][number]
        if truth is not None and exact is not None and exact[0] == "dict":
            truth = truth[1]
        found = difference(item, other, truth, f"{where}[{name}]")
        if found:
            return found
    return ""


def _tensor_difference(expected: Packed, got: Packed, exact: Packed | None, where: str) -> str:
    dtype, shape, array = expected[1:4]
    if len(got) < 4 or got[1] != dtype:
        return f"{where}: expected dtype {dtype}, got {str(got[1])[:40]}"
    if got[2] != shape:
        return f"{where}: expected shape {shape}, got {str(got[2])[:80]}"
    other = got[3]
    if type(other) is not type(array) or other.dtype != array.dtype or other.shape != array.shape:
        return f"{where}: the tensor's data is malformed"
    found = (_on_host if isinstance(array, np.ndarray) else _on_device)(dtype, array, other, exact)
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


def _on_host(dtype: str, array: Any, other: Any, exact: Packed | None) -> _Found | None:
    if dtype not in RTOL:
        return _first(array != other, np.zeros(array.shape), array, other, EXACTLY)
    if array.dtype.kind == "f" and _surely_close(array, other, RTOL[dtype]):
        return None
    reference, answer = widen(dtype, array), widen(dtype, other)
    truth = reference if exact is None else np.asarray(widen(exact[1], exact[3])).reshape(reference.shape)
    return _float_difference(reference, answer, truth, RTOL[dtype])


def _surely_close(reference: Any, answer: Any, rtol: float) -> bool:
    """A quick test that suffices: no error is larger than what is allowed where zero is expected; NaN and infinity fail it."""
    if not reference.size:
        return True
    with np.errstate(invalid="ignore", over="ignore"):
        largest = np.abs(answer - reference).max()
        return bool(largest <= rtol * reference.std(dtype=np.float64))


def _float_difference(reference: Any, answer: Any, truth: Any, rtol: float) -> _Found | None:
    finite = np.isfinite(reference)
    odd = np.where(finite, ~np.isfinite(answer), ~((answer == reference) | (np.isnan(answer) & np.isnan(reference))))
    if odd.any():
        return _first(odd, np.zeros(reference.shape), reference, answer, FINITE)
    if not finite.any():
        return None
    truth = np.where(np.isfinite(truth) & finite, truth, reference)
    kept = reference[finite]
    rounding = ROUNDING * float(np.abs(kept - truth[finite]).max())
    with np.errstate(invalid="ignore"):
        allowed = rtol * (float(kept.std()) + np.abs(truth)) + rounding
        error = np.where(finite, np.abs(answer - truth), 0.0)
    wrong = error > np.where(finite, allowed, np.inf)
    return _first(wrong, error, truth, answer, allowed)


def _first(wrong: Any, error: Any, expected: Any, got: Any, allowed: Any) -> _Found | None:
    if not wrong.any():
        return None
    index = tuple(int(axis[0]) for axis in np.nonzero(wrong)) if wrong.ndim else ()
    limit = allowed if isinstance(allowed, str) else f"{float(allowed[index]):.1e} there"
    return _Found(int(wrong.sum()), int(wrong.size), list(index), got[index], expected[index], float(np.abs(error).max()), limit)


def _on_device(dtype: str, array: Any, other: Any, exact: Packed | None) -> _Found | None:
    """The same by the device's own kernels; complex numbers are compared on the host."""
    if dtype not in RTOL:
        found = array.unequal(other)
        return _first_there(dtype, array, other, None, found.first_wrong, (found.wrong, 0.0, EXACTLY)) if found.wrong else None
    if dtype.startswith("complex"):
        return _on_host(dtype, array.host(), other.host(), None if exact is None else [*exact[:3], exact[3].host()])
    truth = None if exact is None else exact[3]
    if truth is not None and (exact is None or exact[1] != "float64" or truth.size != array.size):
        raise ValueError("the exact answer has another form")
    found = array.differing(dtype, other, truth, RTOL[dtype], ROUNDING)
    if found.odd:
        return _first_there(dtype, array, other, None, found.first_odd, (found.odd, 0.0, FINITE))
    if not found.wrong:
        return None
    first = _first_there(dtype, array, other, truth, found.first_wrong, (found.wrong, found.error, ""))
    spread = (found.squares / found.finite) ** 0.5
    return first._replace(allowed=f"{RTOL[dtype] * (spread + abs(first.expected)) + ROUNDING * found.gap:.1e} there")


def _first_there(dtype: str, array: Any, other: Any, truth: Any, first: int, told: tuple[int, float, str]) -> _Found:
    index = [int(axis) for axis in np.unravel_index(first, array.shape)]
    right = widen(dtype, array.element(first)) if truth is None else truth.element(first)
    if truth is not None and not np.isfinite(right):
        right = widen(dtype, array.element(first))
    count, error, allowed = told
    return _Found(count, array.size, index, widen(dtype, other.element(first)), right, error, allowed)
