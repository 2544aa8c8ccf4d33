"""Verdicts that are judged again: near a step, or extraordinary."""

import pytest

from cuda_agent.judge.doubts import TWICE, Feats, near_step, settled
from cuda_agent.judge.verdict import Status, Verdict


def verdict(ratio: float, versus_compile: float | None = 2.0, status: Status = "correct", reward: float | None = 1.0) -> Verdict:
    """One whose candidate takes `ratio` of eager's time."""
    compiled = None if versus_compile is None else ratio / versus_compile
    return Verdict(status, None, "", reward, "s", ratio, 1.0, compiled, environment={"seed": 5})


@pytest.mark.parametrize(
    ("ratio", "near"), [(0.95, True), (0.968, True), (0.932, True), (0.97, False), (0.93, False), (1.0, False)]
)
def test_ratio_near_the_milestone_is_in_doubt(ratio: float, near: bool) -> None:
    assert near_step(verdict(ratio), 0.05) is near


def test_both_baselines_and_only_correct_ones_are_looked_at() -> None:
    assert near_step(verdict(0.5, versus_compile=0.95), 0.05)
    assert not near_step(verdict(0.5, versus_compile=None), 0.05)
    assert not near_step(verdict(0.95, status="hack"), 0.05)
    assert not near_step(Verdict("correct", None, "", None, "s"), 0.05)


def test_more_than_tenfold_is_extraordinary() -> None:
    feats = Feats()
    assert feats.extraordinary(verdict(0.09))
    assert not feats.extraordinary(verdict(0.11))
    assert not feats.extraordinary(verdict(0.01, status="wrong_output"))


def test_top_hundredth_is_extraordinary_once_enough_were_seen() -> None:
    feats = Feats()
    assert not any(feats.extraordinary(verdict(1.0 / (1.0 + number / 1000))) for number in range(99))
    assert feats.extraordinary(verdict(0.5))
    assert not feats.extraordinary(verdict(0.97))


def test_lower_of_two_judgements_counts_and_both_are_kept() -> None:
    high, low = verdict(0.05, reward=3.0), verdict(0.9, reward=2.0)
    hack, lost = verdict(0.05, status="hack", reward=-1.0), verdict(0.05, status="infra_error", reward=None)
    assert settled(high, low).reward == settled(low, high).reward == 2.0
    assert settled(high, hack).status == settled(hack, high).status == "hack"
    assert settled(high, lost).status == "infra_error"
    assert settled(high, verdict(0.06, reward=3.0)).candidate_ms == 0.06
    kept = settled(high, hack).environment
    assert [one["status"] for one in kept[TWICE]] == ["correct", "hack"] and kept["seed"] == 5
