"""What an evaluation says about a policy: rates, means and their 95 % intervals, from records of single episodes.

Pure. The definitions are the contract's: every episode that has no infrastructure error counts in the denominator;
passed is `correct`; faster is correct and a speed-up above 1.0 (the paper's count); geometric means run over the
correct episodes that have the time in question and are None where there is none. The best verdict of a trajectory is
the one that counts, and choosing it is the episode's business, not this module's.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from cuda_agent.report.intervals import (
    Difference,
    Interval,
    geometric_interval,
    geometric_mean,
    mean_interval,
    paired_difference,
    problem_means,
    rate_interval,
)

REWARD_RANGE = (-1.0, 3.0)


@dataclass(frozen=True)
class EpisodeRecord:
    """One finished episode as the statistics see it: no infrastructure error, the counted verdict only."""

    problem: Hashable
    correct: bool
    reward: float | None  # null for an invalid problem, which earns nothing either way
    speedup_vs_eager: float | None = None
    speedup_vs_compile: float | None = None  # null where torch.compile fails on the problem


@dataclass(frozen=True)
class EvaluationSummary:
    """Figures of one policy over its evaluation episodes; a rate or mean of no episodes is None."""

    episodes: int
    problems: int
    pass_rate: float | None
    mean_reward: float | None
    faster_than_eager: float | None
    faster_than_compile: float | None
    geomean_vs_eager: float | None
    geomean_vs_compile: float | None
    pass_rate_interval: Interval | None
    mean_reward_interval: Interval | None
    faster_than_eager_interval: Interval | None
    faster_than_compile_interval: Interval | None
    geomean_vs_eager_interval: Interval | None
    geomean_vs_compile_interval: Interval | None

    def to_json(self) -> dict[str, Any]:
        """The figures by name; an interval is a list [low, high] or null."""
        return {name: _plain(value) for name, value in vars(self).items()}


def summarise(records: Sequence[EpisodeRecord]) -> EvaluationSummary:
    """Rates, means and intervals over `records`, which hold every episode but those with an infrastructure error."""
    problems = [record.problem for record in records]
    passed = [record.correct for record in records]
    faster_eager = [faster_than_eager(record) for record in records]
    faster_compile = [faster_than_compile(record) for record in records]
    rewards, rewarded = _known(records, lambda record: record.reward)
    eager, eager_problems = _known(records, _correct_speedup_vs_eager)
    compiled, compiled_problems = _known(records, _correct_speedup_vs_compile)
    reward_interval = mean_interval(rewards, rewarded)
    return EvaluationSummary(
        episodes=len(records),
        problems=len(set(problems)),
        pass_rate=_mean(passed),
        mean_reward=_mean(rewards),
        faster_than_eager=_mean(faster_eager),
        faster_than_compile=_mean(faster_compile),
        geomean_vs_eager=geometric_mean(eager),
        geomean_vs_compile=geometric_mean(compiled),
        pass_rate_interval=rate_interval(passed, problems),
        mean_reward_interval=reward_interval.clipped(*REWARD_RANGE) if reward_interval else None,
        faster_than_eager_interval=rate_interval(faster_eager, problems),
        faster_than_compile_interval=rate_interval(faster_compile, problems),
        geomean_vs_eager_interval=geometric_interval(eager, eager_problems),
        geomean_vs_compile_interval=geometric_interval(compiled, compiled_problems),
    )


@dataclass(frozen=True)
class PolicyDifference:
    """How one policy differs from another on the problems that both were evaluated on; a positive value is better."""

    pass_rate: Difference | None
    mean_reward: Difference | None
    faster_than_eager: Difference | None
    faster_than_compile: Difference | None

    def to_json(self) -> dict[str, Any]:
        """By measure: {value, interval: [low, high] or null, problems}, or null where no problem is shared."""
        return {
            name: None
            if difference is None
            else {"value": difference.value, "interval": _plain(difference.interval), "problems": difference.problems}
            for name, difference in vars(self).items()
        }


def compare(policy: Sequence[EpisodeRecord], reference: Sequence[EpisodeRecord]) -> PolicyDifference:
    """Paired differences `policy - reference` by problem, with 95 % intervals."""

    def paired(measure: Callable[[EpisodeRecord], float | None]) -> Difference | None:
        return paired_difference(problem_means(*_known(policy, measure)), problem_means(*_known(reference, measure)))

    return PolicyDifference(
        pass_rate=paired(lambda record: float(record.correct)),
        mean_reward=paired(lambda record: record.reward),
        faster_than_eager=paired(lambda record: float(faster_than_eager(record))),
        faster_than_compile=paired(lambda record: float(faster_than_compile(record))),
    )


def faster_than_eager(record: EpisodeRecord) -> bool:
    """Correct, and a speed-up above 1.0 against eager mode."""
    return record.correct and (record.speedup_vs_eager or 0.0) > 1.0


def faster_than_compile(record: EpisodeRecord) -> bool:
    """Correct, and a speed-up above 1.0 against torch.compile; where that fails on the problem there is none."""
    return record.correct and (record.speedup_vs_compile or 0.0) > 1.0


def _correct_speedup_vs_eager(record: EpisodeRecord) -> float | None:
    return record.speedup_vs_eager if record.correct else None


def _correct_speedup_vs_compile(record: EpisodeRecord) -> float | None:
    return record.speedup_vs_compile if record.correct else None


def _known(
    records: Sequence[EpisodeRecord], measure: Callable[[EpisodeRecord], float | None]
) -> tuple[list[float], list[Hashable]]:
    """The measure of the episodes that have one, and their problems."""
    pairs = [(value, record.problem) for record in records if (value := measure(record)) is not None]
    return [value for value, _ in pairs], [problem for _, problem in pairs]


def _mean(values: Sequence[float] | Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None


def _plain(value: object) -> object:
    return [value.low, value.high] if isinstance(value, Interval) else value
