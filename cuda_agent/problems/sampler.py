"""The default composer: endless candidates that stack crawled operators of torch; modules of transformers are passed on.

Invariants: the stream depends on the settings, the scale and the reports alone (never on what was accepted), so a resumed run
sees the same candidates at the same positions; no operator sequence repeats on the same shapes; numbers of operators follow
`operator_mix`, and modules of transformers `transformers_share`, as closely as integers allow. An operator follows another
only where one of its templates takes what is there by then (shape and type inferred on torch's meta device), and where by the
crawl's measurements it makes a good problem of that kind of values. Nothing here computes a value.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cuda_agent.config import DatasetScience
from cuda_agent.errors import ProblemError
from cuda_agent.problems.problem import Problem, torch_source
from cuda_agent.problems.seeds import Call, CrawlReport, ModuleSeed, TorchSeed, render, sizes
from cuda_agent.problems.shapes import FLOAT32, Scale, Shape, grid, infer

FIRST_KIND = "normal"  # of values that torch.randn draws
RANKS = {2: 0.45, 3: 0.25, 4: 0.25, 5: 0.05}
SQUARE = 0.1  # of chains on matrices or stacks of them
HEAVY = 0.3  # of chains: those that hold an operator that costs more than a pass over its operands
TRIES = 12  # operators tried for one place of a chain
ATTEMPTS = 200  # chains tried for one candidate before its number of operators counts as used up
SHRINK = 64  # how many times smaller than its first input a chain may become before its last operator
GROWTH = 4  # how many times larger
MODULES = 0  # stands for transformers among the numbers of operators


def sample(
    science: DatasetScience, torch_seeds: CrawlReport, transformers_seeds: CrawlReport | None = None, *, scale: Scale = "small"
) -> Iterator[Problem]:
    """Candidates in a fixed order on shapes of a scale; ends only when no new combination is found.

    Raises:
        ProblemError: there is no seed to draw from.
    """
    rng = random.Random(f"sampler:{science.seed}")
    shares = _shares(science, transformers_seeds)
    modules = _modules(rng, transformers_seeds)
    drawer = _Drawer(rng, torch_seeds, scale)
    made = dict.fromkeys(shares, 0)
    while shares:
        size = _most_wanted(shares, made)
        problem = next(modules, None) if size == MODULES else drawer.problem(size)
        if problem is None:
            del shares[size]
            continue
        made[size] += 1
        yield problem


def _shares(science: DatasetScience, transformers_seeds: CrawlReport | None) -> dict[int, float]:
    total = sum(science.operator_mix.values())
    part = science.transformers_share if transformers_seeds is not None else 0.0
    shares = {size: share / total * (1.0 - part) for size, share in sorted(science.operator_mix.items()) if share > 0}
    return {size: share for size, share in {**shares, MODULES: part}.items() if share > 0}


def _most_wanted(shares: dict[int, float], made: dict[int, int]) -> int:
    total = sum(shares.values())
    count = sum(made[size] for size in shares) + 1
    return max(shares, key=lambda size: (count * shares[size] / total - made[size], -size))


def _modules(rng: random.Random, report: CrawlReport | None) -> Iterator[Problem]:
    """Every module in every setting, in a random order with a setting of each before the second of any."""
    seeds = [seed for seed in report.seeds.values() if isinstance(seed, ModuleSeed)] if report is not None else []
    for setting in range(max((len(seed.codes) for seed in seeds), default=0)):
        turn = [seed for seed in seeds if setting < len(seed.codes)]
        rng.shuffle(turn)
        for seed in turn:
            yield seed.problem((setting + len(seed.name)) % len(seed.codes))


@dataclass(frozen=True)
class _Step:
    """An operator in a chain, and the shape and kind of values that it leaves."""

    seed: TorchSeed
    call: Call
    left: Shape
    kind: str


@dataclass
class _Drawer:
    """Draws chains of torch operators."""

    rng: random.Random
    report: CrawlReport
    scale: Scale
    seeds: tuple[TorchSeed, ...] = ()
    seen: set[tuple[tuple[str, ...], Shape]] = field(default_factory=set)
    inferred: dict[Call, tuple[Shape, str] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seeds = tuple(seed for seed in self.report.seeds.values() if isinstance(seed, TorchSeed) and seed.templates)
        if not self.seeds:
            raise ProblemError("the crawl of torch holds no seed to sample from; crawl again with another torch")

    def problem(self, size: int) -> Problem | None:
        """A chain of that many operators on shapes where it was not drawn before; None where none is found."""
        for _ in range(ATTEMPTS):
            chain = self._chain(size)
            if chain is None:
                continue
            names = tuple(step.seed.name for step in chain)
            key = (names, chain[0].call.shape)
            if key not in self.seen:
                self.seen.add(key)
                x = chain[0].seed.x.format(shape=sizes(chain[0].call.shape))
                return Problem(names, torch_source(size), render([step.call for step in chain], x))
        return None

    def _chain(self, size: int) -> list[_Step] | None:
        heavy = self.rng.random() < HEAVY
        place = self.rng.randrange(size) if heavy else None  # of the operator that must be heavy
        shape = first = self._shape(heavy)
        steps: list[_Step] = []
        for number in range(size):
            pool = [s for s in self.seeds if s.heavy == (number == place) or (heavy and s.heavy)]
            step = self._step(pool, shape, steps, last=number == size - 1, first=first)
            if step is None:
                return None
            steps.append(step)
            shape = step.left
        return steps

    def _shape(self, heavy: bool) -> Shape:
        shapes = grid(self.scale, heavy=heavy)
        rank = self.rng.choices(list(RANKS), list(RANKS.values()))[0]
        square = rank in shapes.square and self.rng.random() < SQUARE
        return self.rng.choice((shapes.square if square else shapes.any)[rank])

    def _step(self, pool: Sequence[TorchSeed], shape: Shape, steps: Sequence[_Step], *, last: bool, first: Shape) -> _Step | None:
        """An operator that takes the shape and goes with those before it; None where a dozen drawn ones do not."""
        kind = steps[-1].kind if steps else FIRST_KIND
        names = {step.seed.name for step in steps}
        able = [s for s in pool if kind in s.leaves and s.name not in names and any(t.fits(shape) for t in s.templates)]
        for seed in self.rng.sample(able, min(TRIES, len(able))):
            call = self.rng.choice([template for template in seed.templates if template.fits(shape)]).call(shape)
            output = self._infer(call)
            if output is not None and output[1] == FLOAT32 and _sized(output[0], first, last=last):
                return _Step(seed, call, output[0], seed.leaves[kind])
        return None

    def _infer(self, call: Call) -> tuple[Shape, str] | None:
        if call not in self.inferred:
            self.inferred[call] = infer(call)
        return self.inferred[call]


def _sized(shape: Shape, first: Shape, *, last: bool) -> bool:
    """Whether what is left is worth going on with, and fits in memory."""
    count, start = math.prod(shape), math.prod(first)
    return 1 < count <= GROWTH * start if last else start / SHRINK <= count <= GROWTH * start
