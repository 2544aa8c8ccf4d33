"""Which episodes a batch holds: a pure, seeded plan, so that a resumed batch asks for exactly the same episodes.

Position i of a batch always means the same problem and the same seed. Plans of different steps or seeds differ; plans
of different policies do not, which makes two evaluations comparable episode by episode.
"""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True)
class EpisodePlan:
    """One episode to run: its place in the batch, its problem and the seed of its sampling."""

    position: int
    problem_id: UUID
    seed: int


def episode_seed(seed: int, step: int, position: int) -> int:
    """A 31-bit seed that depends on all three numbers and on nothing else."""
    digest = hashlib.sha256(f"{seed}/{step}/{position}".encode()).digest()
    return int.from_bytes(digest[:4], "little") & 0x7FFF_FFFF


def draw_problems(problem_ids: Sequence[UUID], count: int, seed: int, step: int) -> list[UUID]:
    """Draw `count` problems: every problem once before any comes again, in an order that continues over the steps.

    The endless sequence is a concatenation of shuffles of the set; step k takes the k-th slice of `count` of it.
    """
    drawn: list[UUID] = []
    first = step * count
    for epoch in range(first // len(problem_ids), (first + count - 1) // len(problem_ids) + 1):
        order = list(problem_ids)
        random.Random(f"{seed}/{epoch}").shuffle(order)
        drawn += order
    offset = first % len(problem_ids)
    return drawn[offset : offset + count]


def plan_training_batch(
    problem_ids: Sequence[UUID], episodes: int, samples_per_problem: int, seed: int, step: int
) -> list[EpisodePlan]:
    """Plan `episodes` episodes on drawn problems, `samples_per_problem` on each (the last may get fewer).

    Raises:
        ValueError: there is no problem to draw from.
    """
    if not problem_ids:
        raise ValueError("the dataset has no problem on this side of its split; generate a larger one")
    drawn = draw_problems(problem_ids, -(-episodes // samples_per_problem), seed, step)
    repeated = [problem for problem in drawn for _ in range(samples_per_problem)][:episodes]
    return [EpisodePlan(i, problem, episode_seed(seed, step, i)) for i, problem in enumerate(repeated)]


def plan_evaluation(problem_ids: Sequence[UUID], samples_per_problem: int, seed: int) -> list[EpisodePlan]:
    """Plan the same number of episodes on every problem, problem by problem, so that a judge's children are reused."""
    pairs = [problem for problem in problem_ids for _ in range(samples_per_problem)]
    return [EpisodePlan(i, problem, episode_seed(seed, 0, i)) for i, problem in enumerate(pairs)]
