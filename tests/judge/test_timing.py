"""The arithmetic of timing: intervals and the clock that must add up."""

import pytest

from cuda_agent.judge.timing import Times, ratio_interval


def test_interval_encloses_the_median_and_shrinks() -> None:
    few, many = [0.9, 1.0, 1.1] * 5, [0.99, 1.0, 1.01] * 200
    assert ratio_interval(few) == (0.9, 1.1)
    assert ratio_interval(many) == (1.0, 1.0)
    assert ratio_interval([1.0]) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("unaccounted", "usual", "admitted", "forged"),
    [
        (10_000, 0, 2_000_000, False),  # loop overhead
        (900_000, 0, 2_000_000, False),  # within 0.5 ms and a quarter
        (1_100_000, 0, 2_000_000, True),
        (6_000_000, 7_000_000, 2_000_000, False),  # a busy host: the baselines waited as long
        (27_000_000, 7_000_000, 63, True),
    ],
)
def test_clock(unaccounted: int, usual: int, admitted: int, forged: bool) -> None:
    times = Times(1.0, 1.0, None, 15, {}, (), unaccounted, usual, admitted)
    assert times.forged is forged
