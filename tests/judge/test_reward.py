"""The paper's reward table, by hand, on intervals of the ratio candidate / baseline."""

import pytest

from cuda_agent.judge.reward import Interval, reward

HALF, SAME, SLOWER = (0.48, 0.52), (0.99, 1.01), (1.9, 2.1)
JUST, NOT_QUITE, UNSURE = (0.93, 0.9499), (0.93, 0.95), (0.90, 0.96)


@pytest.mark.parametrize(
    ("status", "eager", "compiled", "expected"),
    [
        ("correct", HALF, HALF, 3.0),
        ("correct", HALF, SAME, 2.0),
        ("correct", HALF, None, 2.0),
        ("correct", SAME, HALF, 1.0),
        ("correct", NOT_QUITE, NOT_QUITE, 1.0),  # exactly 5 % is not more than 5 %
        ("correct", JUST, JUST, 3.0),
        ("correct", JUST, SAME, 2.0),
        ("correct", UNSURE, UNSURE, 1.0),  # the median is 7 % faster, but the interval does not bear it out
        ("correct", SLOWER, None, 1.0),
        ("correct", None, None, None),
        ("wrong_output", None, None, -1.0),
        ("hack", HALF, HALF, -1.0),
        ("build_error", None, None, -1.0),
        ("load_error", None, None, -1.0),
        ("runtime_error", None, None, -1.0),
        ("timeout", None, None, -1.0),
        ("launch_failure", None, None, -1.0),
        ("no_submission", None, None, -1.0),
        ("infra_error", None, None, None),
        ("problem_invalid", HALF, HALF, None),
    ],
)
def test_reward_table(status: str, eager: Interval | None, compiled: Interval | None, expected: float | None) -> None:
    assert reward(status, eager, compiled) == expected


def test_milestone_is_a_setting() -> None:
    assert reward("correct", (0.8, 0.85), (0.8, 0.85), milestone=0.2) == 1.0
    assert reward("correct", (0.7, 0.75), (0.7, 0.75), milestone=0.2) == 3.0
