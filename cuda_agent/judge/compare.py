"""Whether a candidate's outputs are the reference's: pure, on packed values, in numpy.

Structure, types, dtypes and shapes must be equal. An element may be off by

    rtol(dtype) * (spread + |expected|) + 4 * max |reference - reference in float64|

where the spread is the standard deviation of the expected output: zeros, the mean, another input's output and a
half-precision shortcut on a float32 task fail; another order of summation passes. Integers and booleans must be equal.

What passes without the float64 reference passes with it (its distance from the reference is within the second term), so
callers compute it only for outputs that fail without.
"""

from collections.abc import Callable
from typing import Any

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
    if not isinstance(other, np.ndarray) or other.dtype != array.dtype or other.shape != array.shape:
        return f"{where}: the tensor's data is malformed"
    if dtype not in RTOL:
        return _first(array != other, np.zeros_like(array, dtype=np.float64), array, other, where, lambda: "exactly")
    if array.dtype.kind == "f" and _surely_close(array, other, RTOL[dtype]):
        return ""
    reference, answer = widen(dtype, array), widen(dtype, other)
    truth = reference if exact is None else np.asarray(widen(exact[1], exact[3])).reshape(reference.shape)
    return _float_difference(reference, answer, truth, RTOL[dtype], where)


def _surely_close(reference: Any, answer: Any, rtol: float) -> bool:
    """A quick test that suffices: no error is larger than what is allowed where zero is expected; NaN and infinity fail it."""
    if not reference.size:
        return True
    with np.errstate(invalid="ignore", over="ignore"):
        largest = np.abs(answer - reference).max()
        return bool(largest <= rtol * reference.std(dtype=np.float64))


def _float_difference(reference: Any, answer: Any, truth: Any, rtol: float, where: str) -> str:
    finite = np.isfinite(reference)
    odd = np.where(finite, ~np.isfinite(answer), ~((answer == reference) | (np.isnan(answer) & np.isnan(reference))))
    if odd.any():
        return _first(odd, np.zeros(reference.shape), reference, answer, where, lambda: "finite wherever the reference is")
    if not finite.any():
        return ""
    truth = np.where(np.isfinite(truth) & finite, truth, reference)
    kept = reference[finite]
    rounding = ROUNDING * float(np.abs(kept - truth[finite]).max())
    with np.errstate(invalid="ignore"):
        allowed = rtol * (float(kept.std()) + np.abs(truth)) + rounding
        error = np.where(finite, np.abs(answer - truth), 0.0)
    wrong = error > np.where(finite, allowed, np.inf)
    return _first(wrong, error, truth, answer, where, lambda: f"{float(np.median(allowed[finite])):.1e}")


def _first(wrong: Any, error: Any, expected: Any, got: Any, where: str, allowed: Callable[[], str]) -> str:
    if not wrong.any():
        return ""
    index = tuple(int(axis[0]) for axis in np.nonzero(wrong)) if wrong.ndim else ()
    text = (
        f"{where}: {_share(wrong)} elements differ, first at {list(index)}: got {got[index]:.6g}, expected {expected[index]:.6g}"
    )
    return f"{text}; largest error {float(np.abs(error).max()):.3g}, allowed {allowed()}"


def _share(wrong: Any) -> str:
    return f"{int(wrong.sum())} of {wrong.size}"
