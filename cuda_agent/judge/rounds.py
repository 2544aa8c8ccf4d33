"""What a call took in each round, and how the ratio of two contestants is told from that. Pure arithmetic.

Of a batch there are two accounts: what the process admits for its calls, and what the judge's clock saw, less what a batch
of eager's as long as this one usually takes besides its calls. The larger one counts, in each round by itself and for all
contestants alike: nothing that was admitted elsewhere, and no allowance for noise, makes up for time that a process does not
admit. The usual is a median over all rounds: on a busy host a few batches of eager's would tell far too much, and whoever
admits nothing would be given it.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

LEAST_NS = 1.0  # of a call: whoever claims to take no time is divided by


class Account(NamedTuple):
    """What the glue keeps in a candidate's memory (binding.cpp, `State`): the judge reads and writes it there."""

    ghost: int
    inside_ns: int
    calls: int


class Turn(NamedTuple):
    """One batch: nanoseconds that the process admits for all calls, those on the judge's clock, the number of calls.

    `inside` is what of the admitted time passed inside the extension, `entered` how often its functions were called.
    """

    admitted: int
    wall: int
    calls: int
    inside: int = 0
    entered: int = 0


Overheads = Mapping[int, int]  # by the number of calls, nanoseconds of a batch besides them


def overheads(eager: Sequence[Turn], least: int) -> Overheads:
    """What batches usually take besides their calls, from those of eager; `least` is what an empty one takes."""
    found: dict[int, list[int]] = {}
    for turn in eager:
        found.setdefault(turn.calls, []).append(turn.wall - turn.admitted)
    return {calls: max(least, statistics.median_low(values)) for calls, values in found.items()}


def gap(turn: Turn, usual: Overheads) -> int:
    """Nanoseconds by which the judge's clock found more than the process admits."""
    return max(0, turn.wall - usual[turn.calls]) - turn.admitted


def milliseconds(turns: Sequence[Turn], usual: Overheads) -> list[float]:
    """By round, what a call took."""
    return [max(max(turn.admitted, turn.wall - usual[turn.calls]) / turn.calls, LEAST_NS) / 1e6 for turn in turns]


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
