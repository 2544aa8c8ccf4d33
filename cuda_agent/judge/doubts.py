"""Which verdicts are not taken at their word: pure, on verdicts.

A time ratio within 2 % of the milestone could earn another step the next time, so a verdict like that is never reused: who
asks again gets a new one. A speed-up above 10x, or among the highest 1 % of those seen, is more often a cheat than a feat: it
is judged twice, under seeds of its own, and the lower of both verdicts counts.
"""

from bisect import insort
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cuda_agent.judge.verdict import Verdict

NEAR = 0.02
FEAT = 10.0
TOP_SHARE, FEWEST_SEEN = 0.01, 100
TWICE = "judged_twice"  # key in a verdict's environment: both judgements, see `facts`


def near_step(verdict: Verdict, milestone: float) -> bool:
    """Whether a baseline's time ratio lies so close to `1 - milestone` that another timing may decide otherwise."""
    ratios = [1.0 / speedup for speedup in (verdict.speedup_vs_eager, verdict.speedup_vs_compile) if speedup]
    return verdict.status == "correct" and any(abs(ratio / (1.0 - milestone) - 1.0) <= NEAR for ratio in ratios)


class Feats:
    """Remembers speed-ups against eager and tells which of them are extraordinary."""

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self._seen: list[float] = []

    def extraordinary(self, verdict: Verdict) -> bool:
        """Whether to judge again; remembers this one."""
        speedup = verdict.speedup_vs_eager
        if verdict.status != "correct" or speedup is None:
            return False
        insort(self._seen, speedup)
        top = int(len(self._seen) * (1.0 - TOP_SHARE))
        return speedup > FEAT or (len(self._seen) >= FEWEST_SEEN and speedup >= self._seen[top])


def settled(first: Verdict, second: Verdict) -> Verdict:
    """The verdict that two judgements of one submission amount to: the lower one, with both on record."""
    lower = second if _rank(second) <= _rank(first) else first
    return replace(lower, environment={**lower.environment, TWICE: [facts(first), facts(second)]})


def facts(verdict: Verdict) -> dict[str, Any]:
    """What the audit shows of one of them."""
    told: Mapping[str, Any] = {
        "status": verdict.status,
        "kind": verdict.kind,
        "reward": verdict.reward,
        "candidate_ms": verdict.candidate_ms,
        "eager_ms": verdict.eager_ms,
        "compile_ms": verdict.compile_ms,
        "seed": verdict.environment.get("seed"),
    }
    return dict(told)


def _rank(verdict: Verdict) -> tuple[float, float]:
    """Reward, then speed-up; one that trains nothing is below all."""
    return (-2.0 if verdict.reward is None else verdict.reward, verdict.speedup_vs_eager or 0.0)
