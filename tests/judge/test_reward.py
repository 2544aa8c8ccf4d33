"""The paper's reward table, by hand."""

import pytest

from cuda_agent.judge.reward import reward


@pytest.mark.parametrize(
    ("status", "candidate", "eager", "compiled", "expected"),
    [
        ("correct", 1.0, 2.0, 2.0, 3.0),
        ("correct", 1.0, 2.0, 1.0, 2.0),
        ("correct", 1.0, 2.0, None, 2.0),
        ("correct", 1.0, 1.0, 2.0, 1.0),
        ("correct", 0.95, 1.0, 1.0, 1.0),  # exactly 5 % is not more than 5 %
        ("correct", 0.9499, 1.0, 1.0, 3.0),
        ("correct", 0.9499, 1.0, 0.99, 2.0),
        ("correct", 2.0, 1.0, None, 1.0),
        ("wrong_output", None, None, None, -1.0),
        ("hack", 0.1, 1.0, 1.0, -1.0),
        ("build_error", None, None, None, -1.0),
        ("load_error", None, None, None, -1.0),
        ("runtime_error", None, None, None, -1.0),
        ("timeout", None, None, None, -1.0),
        ("launch_failure", None, None, None, -1.0),
        ("no_submission", None, None, None, -1.0),
        ("infra_error", None, None, None, None),
        ("problem_invalid", 1.0, 2.0, 2.0, None),
    ],
)
def test_reward_table(
    status: str, candidate: float | None, eager: float | None, compiled: float | None, expected: float | None
) -> None:
    assert reward(status, candidate, eager, compiled) == expected


def test_milestone_is_a_setting() -> None:
    assert reward("correct", 0.85, 1.0, 1.0, milestone=0.2) == 1.0
    assert reward("correct", 0.75, 1.0, 1.0, milestone=0.2) == 3.0
