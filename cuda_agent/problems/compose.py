"""Seeded composition: endless candidates that stack 1 to 5 catalogue operators, in one fixed text form.

Invariants: the stream depends on the science settings alone (never on what was accepted), so a resumed run sees the same
candidates at the same positions; no operator sequence repeats on the same shape; numbers of operators follow
`operator_mix` as closely as integers allow; no chain is dead or ill-conditioned. Death is measured on a small numpy
sample: a chain is dead where leaving out any run of its operators changes (next to) nothing, which covers relu after
sigmoid, softmax after log_softmax, neg twice and a shift before layer_norm alike, or where its output is (nearly) one
constant, as sum after softmax is.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuda_agent.config import DatasetScience
from cuda_agent.problems.catalogue import Operator, Rows, family
from cuda_agent.problems.problem import Problem, torch_source

# Per operator; few matmuls, for on a CPU the library's is what nobody beats, and a problem with one tells no style from another.
FAMILY_WEIGHTS = {"elementwise": 0.71, "reduction": 0.27, "matmul": 0.02}
SAMPLE_ROWS = 16
DEAD = 0.05  # mean change, in standard deviations of the output, below which a left-out operator counts as dead
CONSTANT = 0.02  # mean deviation from the mean, relative to the mean magnitude; vetting refuses at 0.01
NOISE = 1e-3  # float32 against float64, in standard deviations of the output
FAINT = 1e-4  # standard deviation of the output below which tolerances elsewhere would pass zeros
TAME = 1e4  # largest magnitude between operators
ATTEMPTS = 300  # draws for one candidate before its number of operators counts as used up


@dataclass(frozen=True)
class Shape:
    """`rows` x `cols` of the input; `out_features` is what a matmul makes of the columns, 0 without one."""

    rows: int
    cols: int
    out_features: int = 0


# Eager times on 2 cores (Zen 4), measured per operator: 0.02-0.3 ms at 128x1024. Larger ones change no reward of the
# teacher's styles (docs/experiments.md), and an exam costs in proportion to the numbers that it moves.
_SMALL_ROWS = (Shape(128, 1024), Shape(256, 512), Shape(256, 768), Shape(512, 512), Shape(256, 1024))
SMALL_SHAPES = {
    "elementwise": _SMALL_ROWS,
    "reduction": _SMALL_ROWS,
    "matmul": (Shape(64, 256, 256), Shape(128, 256, 256), Shape(128, 512, 256), Shape(256, 256, 128)),
}
# For windows that start at 1 ms or later, as the paper's.
LARGE_SHAPES = {
    "elementwise": (Shape(2048, 2048), Shape(4096, 2048), Shape(4096, 4096), Shape(8192, 4096)),
    "reduction": (Shape(2048, 2048), Shape(4096, 2048), Shape(4096, 4096), Shape(8192, 4096)),
    "matmul": (Shape(1024, 1024, 1024), Shape(2048, 1024, 1024), Shape(2048, 2048, 1024)),
}


def compose(science: DatasetScience) -> Iterator[Problem]:
    """Candidates in a fixed order; ends only when no new combination is found."""
    rng = random.Random(f"compose:{science.seed}")
    shapes = LARGE_SHAPES if science.eager_ms_min >= 1.0 else SMALL_SHAPES
    shares = {size: share for size, share in sorted(science.operator_mix.items()) if share > 0}
    made = dict.fromkeys(shares, 0)
    seen: set[tuple[tuple[str, ...], Shape]] = set()
    while shares:
        size = _most_wanted(shares, made)
        drawn = _draw_new(rng, size, science.families, shapes, seen)
        if drawn is None:
            del shares[size]
            continue
        made[size] += 1
        operators, shape = drawn
        names = tuple(operator.name for operator in operators)
        seen.add((names, shape))
        yield Problem(names, torch_source(size), render(operators, shape))


def render(operators: Sequence[Operator], shape: Shape) -> str:
    """The problem text of a chain on a shape: one statement per line, always in this form."""
    linear = [operator for operator in operators if operator.init]
    signature = "self, features, out_features" if linear else "self"
    arguments = f"{shape.cols}, {shape.out_features}" if linear else ""
    lines = [
        "import torch",
        "import torch.nn as nn",
        "",
        "class Model(nn.Module):",
        f"    def __init__({signature}):",
        "        super().__init__()",
        *(f"        {operator.init}" for operator in linear),
        "",
        "    def forward(self, x):",
        *(f"        {operator.statement}" for operator in operators),
        "        return x",
        "",
        "def get_inputs():",
        f"    return [torch.randn({shape.rows}, {shape.cols})]",
        "",
        "def get_init_inputs():",
        f"    return [{arguments}]",
    ]
    return "\n".join(lines) + "\n"


def well_formed(operators: Sequence[Operator]) -> bool:
    """Whether operators that leave one value per row stand last, and at most one operator holds weights."""
    return not any(operator.last_only for operator in operators[:-1]) and sum(bool(o.init) for o in operators) <= 1


def weakness(operators: Sequence[Operator], columns: int) -> str | None:
    """Why a chain makes no good problem (dead, constant, ill-conditioned, wild), or None; see the module's invariants."""
    sample = np.random.default_rng(columns).standard_normal((SAMPLE_ROWS, columns))
    steps = _steps(operators, sample)
    output = steps[-1]
    spread = float(output.std())
    if not all(np.isfinite(step).all() for step in steps) or max(float(np.abs(step).max()) for step in steps[:-1]) > TAME:
        return "its values run away"
    if np.abs(output - output.mean()).mean() <= CONSTANT * np.abs(output).mean():
        return "its output is nearly one constant"
    if spread < FAINT:
        return "its output vanishes"
    single = _steps(operators, sample.astype(np.float32))[-1]
    if np.abs(single - output).mean() > NOISE * spread:
        return "float32 noise drowns its output"
    return _dead_run(operators, steps, spread)


def _dead_run(operators: Sequence[Operator], steps: Sequence[NDArray[Any]], spread: float) -> str | None:
    for start, stop in combinations(range(len(operators) + 1), 2):
        shortened = _steps(operators[stop:], steps[start])[-1]
        if shortened.shape == steps[-1].shape and np.abs(shortened - steps[-1]).mean() <= DEAD * spread:
            return f"leaving out {' and '.join(o.name for o in operators[start:stop])} changes nothing"
    return None


def _steps(operators: Sequence[Operator], sample: Rows) -> list[Rows]:
    """The sample and what it is after each operator."""
    steps = [sample]
    for operator in operators:
        steps.append(operator.reference(steps[-1]))
    return steps


def _most_wanted(shares: dict[int, float], made: dict[int, int]) -> int:
    total = sum(shares.values())
    count = sum(made[size] for size in shares) + 1
    return max(shares, key=lambda size: (count * shares[size] / total - made[size], -size))


def _draw_new(
    rng: random.Random,
    size: int,
    families: Sequence[str],
    shapes: dict[str, tuple[Shape, ...]],
    seen: set[tuple[tuple[str, ...], Shape]],
) -> tuple[tuple[Operator, ...], Shape] | None:
    for _ in range(ATTEMPTS):
        operators = _draw_operators(rng, size, families)
        shape = rng.choice(shapes[_heaviest(operators)])
        key = (tuple(operator.name for operator in operators), shape)
        if key not in seen and well_formed(operators) and weakness(operators, shape.cols) is None:
            return operators, shape
    return None


def _draw_operators(rng: random.Random, size: int, families: Sequence[str]) -> tuple[Operator, ...]:
    weights = [FAMILY_WEIGHTS[name] for name in families]
    chosen = rng.choices(families, weights, k=size)
    return tuple(rng.choice(family(name)) for name in chosen)


def _heaviest(operators: Sequence[Operator]) -> str:
    found = {operator.family for operator in operators}
    return next(name for name in ("matmul", "reduction", "elementwise") if name in found)
