"""What a call took in each round, and how the ratio of two contestants is told from that. Pure arithmetic.

Of a batch there are two accounts: what the process admits for its calls, and how much more the judge's clock found, the gap.
The larger one counts, in each round by itself and for all contestants alike: nothing that was admitted elsewhere, and no
allowance for noise, makes up for time that a process does not admit.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

LEAST_NS = 1.0  # of a call: whoever claims to take no time is divided by


class Turn(NamedTuple):
    """One batch: nanoseconds that the process admits for all calls, what the judge's clock found besides, the number of calls."""

    admitted: int
    gap: int
    calls: int


def milliseconds(turns: Sequence[Turn]) -> list[float]:
    """By round, what a call took."""
    return [max((turn.admitted + max(0, turn.gap)) / turn.calls, LEAST_NS) / 1e6 for turn in turns]


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
