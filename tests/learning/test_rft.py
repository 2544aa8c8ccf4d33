"""Which trajectories are learnt from, and the supervised loss."""

import dataclasses

import pytest
import torch

from cuda_agent.config import RftScience
from cuda_agent.learning.rft import Trajectory, call_text, calls_of, find_loop, select, sft_loss

GOOD = Trajectory("r1", "transformers", 1.0, 0, ("write", "check", "write again", "check"))


def rule(**changes: object) -> str | None:
    selection = select([dataclasses.replace(GOOD, **changes)], RftScience())
    return selection.dropped[0].rule if selection.dropped else None


def test_a_clean_rewarded_trajectory_is_kept() -> None:
    assert rule() is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"engine": "teacher"}, "engine"),
        ({"has_tokens": False}, "tokens"),
        ({"reward": None}, "reward"),
        ({"reward": -1.0}, "reward"),
        ({"reward": 0.0}, "reward"),
        ({"invalid_tool_calls": 1}, "malformed_calls"),
        ({"calls": ("check",) * 3}, "loop"),
        ({"calls": ("write", "check") * 3}, "loop"),
    ],
)
def test_each_rule_drops_with_its_name(changes: dict[str, object], expected: str) -> None:
    assert rule(**changes) == expected


def test_repeating_as_often_as_allowed_is_no_loop() -> None:
    assert rule(calls=("check", "check", "write", "check", "check")) is None


def test_loop_names_the_shortest_block() -> None:
    assert find_loop(("a", "b", "c", "b", "c", "b", "c"), 2) == (2, 3)
    assert find_loop(("a", "a", "a", "a"), 2) == (1, 4)
    assert find_loop((), 1) is None


def test_selection_holds_every_trajectory_once_and_reasons_are_sentences() -> None:
    bad = dataclasses.replace(GOOD, rollout_id="r2", reward=-1.0)
    selection = select([bad, GOOD], RftScience())
    assert [trajectory.rollout_id for trajectory in selection.kept] == ["r1"]
    assert selection.dropped[0].rollout_id == "r2"
    assert selection.dropped[0].reason == "reward -1 is not above 0"


def test_equal_calls_have_equal_texts_whatever_the_order_of_arguments() -> None:
    turns = [
        [{"name": "Write", "arguments": {"path": "a", "text": "b"}}],
        [{"arguments": {"text": "b", "path": "a"}, "name": "Write"}],
    ]
    first, second = calls_of(turns)
    assert first == second
    assert first != call_text({"name": "Write", "arguments": {"path": "a", "text": "c"}})


def test_sft_loss_is_the_weighted_negative_logprob() -> None:
    assert sft_loss(torch.tensor([-1.0, -3.0]), torch.tensor([0.5, 0.5])).item() == pytest.approx(2.0)
