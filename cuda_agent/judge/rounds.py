"""What a call took in each round, and how the ratio of two contestants is told from that. Pure arithmetic.

Of a batch there are two accounts: what the process admits for its calls, and how much more the judge's clock found, the gap.
A gap has a cost of its own (waking, answering, stopping) and noise; both are the same for all, and eager has no reason to
lie. So a batch takes what its process admits and what its gap has beyond nine tenths of eager's; what a contestant's gaps
have more than eager's on average, beyond the error of that mean, is added to all of its rounds. A process that admits too
little is thus charged the rest, however it spreads it, and an honest one does not pay for the clock's noise.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

ALLOWED = 0.9  # quantile of eager's gaps that is nobody's fault
LEAST_NS = 1.0  # of a call: whoever claims to take no time is divided by


class Turn(NamedTuple):
    """One batch: nanoseconds that the process admits for all calls, what the judge's clock found besides, the number of calls."""

    admitted: int
    gap: int
    calls: int


def milliseconds(turns: Sequence[Sequence[Turn]]) -> list[list[float]]:
    """By contestant and round, what a call took; the second contestant is eager. All have taken as many turns."""
    eager = turns[1]
    gaps = sorted(turn.gap for turn in eager)
    allowed = gaps[min(len(gaps) - 1, int(ALLOWED * len(gaps)))]
    return [_of_one(mine, eager, allowed) for mine in turns]


def _of_one(mine: Sequence[Turn], eager: Sequence[Turn], allowed: int) -> list[float]:
    excess = _excess(
        [(min(one.gap, allowed) - min(other.gap, allowed)) / one.calls for one, other in zip(mine, eager, strict=True)]
    )
    charged = [(turn.admitted + max(0, turn.gap - allowed)) / turn.calls + excess for turn in mine]
    return [max(value, LEAST_NS) / 1e6 for value in charged]


def _excess(differences: Sequence[float]) -> float:
    """The mean, as far as it is beyond its own error."""
    error = statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else 0.0
    return max(0.0, statistics.fmean(differences) - error)


def ratios(mine: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """By round."""
    return [one / other for one, other in zip(mine, theirs, strict=True)]


def ratio_interval(found: Sequence[float], z: float = 1.96) -> tuple[float, float]:
    """Distribution-free 95 % interval of a median: order statistics at n/2 -+ z sqrt(n)/2 (binomial, normal approximation)."""
    ordered, count = sorted(found), len(found)
    reach = z * math.sqrt(count) / 2
    low = max(0, math.floor(count / 2 - reach))
    high = min(count - 1, math.ceil(count / 2 + reach) - 1)
    return ordered[low], ordered[high]
