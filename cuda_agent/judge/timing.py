"""Comparing times: candidate, eager and torch.compile in turn, round after round, under one exclusive lease.

Each child times its own calls; the judge's clock around each batch tells whether the times admitted add up. The result
is a median over rounds. Rounds go on until both baselines are clearly on one side of the milestone, or a bound is met.
Runs in a thread: no event loop sits between a request and its answer.
"""

import contextlib
import math
import os
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from secrets import SystemRandom
from typing import Any

from cuda_agent.config import JudgeConfig
from cuda_agent.sandbox.forkserver import Child, ChildFailed

BATCH_MS = 2.0  # calls are batched to about this long
MAX_BATCH = 8
CALL_SECONDS = 30.0
CHECKED_ROUNDS = 3  # rounds after which an output of the candidate is fetched for comparison
CLOCK_SLACK_NS = 500_000
CLOCK_SHARE = 0.25


@dataclass(frozen=True)
class Sample:
    """An output of a timed call: which set of inputs it must answer, and its packed value."""

    input_set: int
    output: Any


@dataclass(frozen=True)
class Times:
    """Medians in milliseconds (compile None where there is none), raw batch medians, and what to check afterwards."""

    candidate_ms: float
    eager_ms: float
    compile_ms: float | None
    rounds: int
    raw_ms: Mapping[str, Sequence[float]]
    samples: tuple[Sample, ...]
    unaccounted_ns: int  # least time of a batch that the judge's clock saw and the candidate did not admit
    usual_ns: int  # the same of the baselines in the same rounds, three quarters of the way up
    admitted_ns: int  # what the candidate admitted in that batch

    @property
    def forged(self) -> bool:
        """Whether the candidate's own times fall short of the judge's clock by more than noise explains.

        On a busy host the judge itself is kept waiting; the baselines, which have no reason to lie, show by how much.
        """
        return self.unaccounted_ns > self.usual_ns + CLOCK_SLACK_NS + CLOCK_SHARE * self.admitted_ns


class Contestant:
    """One of the three: how to ask for a batch, and what was measured."""

    def __init__(self, name: str, child: Child, extra: Mapping[str, Any], sets: int) -> None:
        """`extra` goes with every request; `sets` is the number of input sets the child holds."""
        self.name, self.child, self.extra, self.sets = name, child, dict(extra), sets
        self.medians: list[float] = []
        self.count = 1
        self.unaccounted: list[tuple[int, int]] = []
        self.empty_ns = 0

    def ask(self, count: int) -> tuple[list[int], int]:
        """Run a batch; the admitted nanoseconds of each call, and the judge's own for all."""
        start = time.perf_counter_ns()
        answer = self.child.call_blocking("batch", {**self.extra, "count": count}, CALL_SECONDS)
        wall = time.perf_counter_ns() - start
        if (
            not isinstance(answer, list)
            or len(answer) != count + 1
            or not all(type(ns) is int and 0 <= ns < 10**12 for ns in answer)
        ):
            raise ChildFailed("crash", "answered a timed batch with nonsense")
        return answer, wall

    def calibrate(self) -> None:
        """Measure the empty batch and pick how many calls make a batch; by now the child has all its threads."""
        self.child.hasten()
        self.empty_ns = min(self.ask(-1)[1] for _ in range(3))
        quickest = min(self.ask(2)[0][1:])
        self.count = max(1, min(MAX_BATCH, round(BATCH_MS * 1e6 / max(quickest, 1))))

    def round(self) -> None:
        """One batch: its median call counts."""
        times, wall = self.ask(self.count)
        self.medians.append(statistics.median(times[1:]) / 1e6)
        self.unaccounted.append((wall - self.empty_ns - sum(times), sum(times)))


def measure(candidate: Child, baseline: Child, *, compiles: bool, input_sets: int, config: JudgeConfig) -> Times:
    """Time the three; the caller holds the exclusive lease and compares `samples` afterwards.

    Raises:
        ChildFailed: from the candidate (`child` attribute tells which: the baseline's is raised as BaselineLost).
    """
    contestants = [Contestant("candidate", candidate, {}, input_sets), Contestant("eager", baseline, {"which": "eager"}, 0)]
    if compiles:
        contestants.append(Contestant("compile", baseline, {"which": "compile"}, 0))
    with contextlib.suppress(OSError):  # this thread only, and only where it may: the clock should not wait for its turn
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -20)
    for contestant in contestants:
        _guarded(contestant, contestant.calibrate)
    chance = SystemRandom()
    checked = set(chance.sample(range(config.min_repetitions), min(CHECKED_ROUNDS, config.min_repetitions)))
    samples: list[Sample] = []
    deadline = time.monotonic() + config.timing_seconds
    for number in range(config.max_repetitions):
        for turn in range(len(contestants)):
            contestant = contestants[(number + turn) % len(contestants)]
            _guarded(contestant, contestant.round)
            if contestant.name == "candidate" and number in checked:
                samples.append(_sample(contestant, chance))
        if number + 1 >= config.min_repetitions and (time.monotonic() > deadline or _decided(contestants, config.milestone)):
            break
        if number >= 2 and time.monotonic() > deadline + config.timing_seconds:
            break
    return _times(contestants, tuple(samples))


class BaselineLost(Exception):
    """The baseline child failed while timing: an infrastructure fault, not the submission's."""


def _guarded(contestant: Contestant, act: Any) -> None:
    try:
        act()
    except ChildFailed as failure:
        if contestant.name == "candidate":
            raise
        raise BaselineLost(str(failure)) from failure


def _sample(contestant: Contestant, chance: SystemRandom) -> Sample:
    call = chance.randrange(contestant.count + 1)
    return Sample(call % contestant.sets, contestant.child.call_blocking("output", {"call": call}, CALL_SECONDS))


def _decided(contestants: Sequence[Contestant], milestone: float) -> bool:
    """Whether every baseline's interval of the median ratio lies on one side of 1 - milestone."""
    own = contestants[0].medians
    for other in contestants[1:]:
        low, high = ratio_interval([mine / theirs for mine, theirs in zip(own, other.medians, strict=True)])
        if low <= 1.0 - milestone <= high:
            return False
    return True


def ratio_interval(ratios: Sequence[float], z: float = 1.96) -> tuple[float, float]:
    """Distribution-free 95 % interval of a median: order statistics at n/2 -+ z sqrt(n)/2 (binomial, normal approximation)."""
    ordered, count = sorted(ratios), len(ratios)
    reach = z * math.sqrt(count) / 2
    low = max(0, math.floor(count / 2 - reach))
    high = min(count - 1, math.ceil(count / 2 + reach) - 1)
    return ordered[low], ordered[high]


def _times(contestants: Sequence[Contestant], samples: tuple[Sample, ...]) -> Times:
    medians = {contestant.name: statistics.median(contestant.medians) for contestant in contestants}
    unaccounted, admitted = min(contestants[0].unaccounted)
    usual = max(sorted(gap for gap, _ in other.unaccounted)[3 * len(other.unaccounted) // 4] for other in contestants[1:])
    return Times(
        candidate_ms=medians["candidate"],
        eager_ms=medians["eager"],
        compile_ms=medians.get("compile"),
        rounds=len(contestants[0].medians),
        raw_ms={contestant.name: [round(value, 5) for value in contestant.medians] for contestant in contestants},
        samples=samples,
        unaccounted_ns=unaccounted,
        usual_ns=max(0, usual),
        admitted_ns=admitted,
    )
