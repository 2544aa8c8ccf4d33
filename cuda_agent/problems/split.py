"""The held-out split: by operator sequence, so that evaluation never asks for a composition that training has seen.

Invariants: no sequence, nor any permutation of one, stands on both sides; exactly `held_out` problems are held out; the
same problems, count and seed give the same sides. Groups with an operator that few others have are held out last, so
that evaluation asks for new compositions of operators that training knows, where the counts allow.
"""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from cuda_agent.errors import ProblemError

Side = Literal["train", "held_out"]
RARE = 3  # groups with an operator, below which they are kept for training if possible


def split(sequences: Sequence[tuple[str, ...]], held_out: int, seed: int) -> list[Side]:
    """The side of each problem, given its operator sequence.

    Raises:
        ProblemError: the groups of equal operators cannot add up to exactly `held_out` problems.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for position, sequence in enumerate(sequences):
        groups.setdefault(tuple(sorted(sequence)), []).append(position)
    order = sorted(groups)
    random.Random(f"split:{seed}").shuffle(order)
    groups_with = Counter(name for key in groups for name in set(key))
    order.sort(key=lambda key: any(groups_with[name] < RARE for name in key))
    chosen = _exact_sum([len(groups[key]) for key in order], held_out)
    if chosen is None:
        raise ProblemError(
            f"{len(sequences)} problems in {len(groups)} operator groups cannot hold out exactly {held_out}; "
            "ask for another count or a wider operator_mix"
        )
    sides: list[Side] = ["train"] * len(sequences)
    for index in chosen:
        for position in groups[order[index]]:
            sides[position] = "held_out"
    return sides


def can_split(sequences: Sequence[tuple[str, ...]], held_out: int) -> bool:
    """Whether `split` would succeed; the seed plays no part."""
    groups: dict[tuple[str, ...], int] = {}
    for sequence in sequences:
        key = tuple(sorted(sequence))
        groups[key] = groups.get(key, 0) + 1
    return _exact_sum(list(groups.values()), held_out) is not None


def _exact_sum(sizes: Sequence[int], wanted: int) -> list[int] | None:
    """Indices whose sizes add up to `wanted`, the earliest indices preferred; None if there are none."""
    reachable = [1]  # bit s of entry i: sum s can be reached with sizes[len - i:], so that the walk below never backtracks
    mask = (1 << (wanted + 1)) - 1
    for size in reversed(sizes):
        reachable.append((reachable[-1] | reachable[-1] << size) & mask)
    if not reachable[-1] >> wanted & 1:
        return None
    chosen: list[int] = []
    for index, size in enumerate(sizes):
        rest = reachable[len(sizes) - index - 1]
        if size <= wanted and rest >> (wanted - size) & 1:
            chosen.append(index)
            wanted -= size
    return chosen
