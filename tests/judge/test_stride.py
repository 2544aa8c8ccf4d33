"""Thinning that what repeats does not deceive."""

import pytest

from cuda_agent.judge.stride import prime_from, stride


@pytest.mark.parametrize(("length", "most", "step"), [(0, 10, 1), (10, 10, 1), (11, 10, 5), (100, 10, 11), (262_145, 512, 521)])
def test_no_more_are_left_than_wanted(length: int, most: int, step: int) -> None:
    assert stride(length, most) == step and len(range(0, length, step)) <= most


@pytest.mark.parametrize("period", [2, 3, 4, 8, 512])
def test_every_place_of_what_repeats_is_met(period: int) -> None:
    step = stride(2**20, 2**12)
    assert {place % period for place in range(0, 2**20, step)} == set(range(period))


def test_primes_follow() -> None:
    assert [prime_from(number) for number in (0, 5, 6, 10, 24, 1_000)] == [5, 5, 7, 11, 29, 1_009]
