import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuda_agent.errors import ProblemError
from cuda_agent.problems.split import can_split, split

SEQUENCES = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3).map(tuple), min_size=1, max_size=30)


@settings(max_examples=200, deadline=None)
@given(SEQUENCES, st.integers(0, 12), st.integers(0, 3))
def test_exact_disjoint_and_repeatable_or_refused(sequences: list, held_out: int, seed: int) -> None:
    if not can_split(sequences, held_out):
        with pytest.raises(ProblemError, match=f"exactly {held_out}"):
            split(sequences, held_out, seed)
        return
    sides = split(sequences, held_out, seed)
    assert sides == split(sequences, held_out, seed)
    assert sides.count("held_out") == held_out and len(sides) == len(sequences)
    groups = [
        {tuple(sorted(q)) for q, side in zip(sequences, sides, strict=True) if side == which} for which in ("train", "held_out")
    ]
    assert not groups[0] & groups[1]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=7), st.integers(0, 12))
def test_possible_exactly_when_some_groups_add_up(sizes: list[int], wanted: int) -> None:
    sequences = [(str(group),) for group, size in enumerate(sizes) for _ in range(size)]
    sums = {0}
    for size in sizes:
        sums |= {total + size for total in sums}
    assert can_split(sequences, wanted) == (wanted in sums)


def test_another_seed_holds_out_others() -> None:
    sequences = [(str(number),) for number in range(30)]
    assert len({tuple(split(sequences, 10, seed)) for seed in range(5)}) == 5


def test_permutations_stay_together() -> None:
    sides = split([("a", "b"), ("b", "a"), ("c",), ("d",)], 2, 0)
    assert sides[0] == sides[1]


def test_the_only_problem_with_an_operator_stays_in_training() -> None:
    sequences = [("a", "b"), ("a", "c"), ("b", "c"), ("a",), ("b",), ("c",), ("rare", "a")]
    assert all(split(sequences, 3, seed)[6] == "train" for seed in range(20))
