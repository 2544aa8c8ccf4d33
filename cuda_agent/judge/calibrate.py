"""Whether a problem can tell right from wrong: its reference answers, held against answers that take no work.

Zeros, one constant, a copy of an input and the answer to other inputs must differ from the reference by more than the
tolerance. Pure, on packed values; the judge asks once per problem and calls a problem that cannot tell `problem_invalid`.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from cuda_agent.judge.compare import difference
from cuda_agent.judge.values import Packed, leaves, widen, with_leaves


def fault(inputs: Sequence[Packed], outputs: Sequence[Packed]) -> str:
    """Why the problem cannot be judged, or an empty string, from at least two plain cases under the same weights."""
    if not any(True for _ in leaves(outputs[0])):
        return "the reference returns no tensor"
    for name, guess in _guesses(inputs[0], outputs):
        if not difference(outputs[0], guess):
            return f"the answer {name} passes: its tolerance cannot tell it from the right one"
    return ""


def _guesses(inputs: Packed, outputs: Sequence[Packed]) -> Iterator[tuple[str, Packed]]:
    right = outputs[0]
    yield "zeros", with_leaves(right, (_filled(leaf, 0.0) for leaf in leaves(right)))
    yield (
        "one constant",
        with_leaves(right, (_filled(leaf, float(widen(leaf[1], leaf[3]).real.mean())) for leaf in leaves(right))),
    )
    for other in outputs[1:2]:
        yield "to other inputs", other
    for leaf in leaves(inputs):
        if right[0] == "tensor" and leaf[1:3] == right[1:3]:
            yield "a copy of an input", leaf


def _mean(leaf: Packed) -> float:
    return float(widen(leaf[1], leaf[3]).real.mean()) if np.size(leaf[3]) else 0.0


def _filled(leaf: Packed, value: float) -> Packed:
    _, dtype, shape, array = leaf[:4]
    if dtype == "bfloat16":
        bits = np.full(shape, value, np.float32).view(np.uint32) >> 16
        return ["tensor", dtype, shape, bits.astype(np.uint16), leaf[4]]
    filled = np.full(shape, value).astype(array.dtype) if array.size else array
    return ["tensor", dtype, shape, filled, leaf[4]]
