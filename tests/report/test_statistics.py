"""Evaluation figures against numbers worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuda_agent.report.statistics import EpisodeRecord, compare, summarise

RECORDS = [
    EpisodeRecord("a", True, 3.0, 2.0, 4.0),
    EpisodeRecord("a", True, 1.0, 0.5, 1.0),  # a speed-up of exactly 1.0 is not faster
    EpisodeRecord("b", False, -1.0, 8.0, 8.0),  # wrong, however fast
    EpisodeRecord("b", True, 2.0, 8.0, None),  # torch.compile fails on this problem
]

episodes = st.builds(
    EpisodeRecord,
    problem=st.integers(0, 6),
    correct=st.booleans(),
    reward=st.sampled_from([None, -1.0, 1.0, 2.0, 3.0]),
    speedup_vs_eager=st.none() | st.floats(0.01, 100),
    speedup_vs_compile=st.none() | st.floats(0.01, 100),
)


def test_figures_by_hand():
    found = summarise(RECORDS)
    assert (found.episodes, found.problems) == (4, 2)
    assert found.pass_rate == 0.75
    assert found.mean_reward == pytest.approx(1.25)
    assert found.faster_than_eager == 0.5
    assert found.faster_than_compile == 0.25
    assert found.geomean_vs_eager == pytest.approx(2.0)  # (2 * 0.5 * 8) ** (1/3)
    assert found.geomean_vs_compile == pytest.approx(2.0)  # (4 * 1) ** (1/2)


def test_an_invalid_problem_counts_as_not_passed_but_has_no_reward():
    found = summarise([*RECORDS[:1], EpisodeRecord("c", False, None)])
    assert found.pass_rate == 0.5
    assert found.mean_reward == 3.0


def test_no_correct_episode_means_null_geometric_means():
    found = summarise([EpisodeRecord("a", False, -1.0, 2.0, 2.0), EpisodeRecord("b", False, -1.0)])
    assert (found.pass_rate, found.geomean_vs_eager, found.geomean_vs_compile) == (0.0, None, None)
    assert found.geomean_vs_eager_interval is None


def test_no_episodes_means_nulls():
    found = summarise([]).to_json()
    assert found["episodes"] == 0
    assert all(value is None for name, value in found.items() if name not in {"episodes", "problems"})


def test_json_has_the_contract_keys_and_plain_intervals():
    found = summarise(RECORDS).to_json()
    assert {"pass_rate", "mean_reward", "faster_than_eager", "faster_than_compile"} <= found.keys()
    low, high = found["pass_rate_interval"]
    assert 0.0 <= low <= 0.75 <= high <= 1.0


def test_paired_difference_of_two_policies_by_hand():
    better = [EpisodeRecord("a", True, 3.0, 2.0, 2.0), EpisodeRecord("b", True, 1.0, 0.9, 0.9)]
    found = compare(better, RECORDS)
    assert found.pass_rate is not None and found.mean_reward is not None
    assert found.pass_rate.value == pytest.approx(0.25)  # a: 1 - 1, b: 1 - 1/2
    assert found.mean_reward.value == pytest.approx(0.75)  # a: 3 - 2, b: 1 - 1/2
    assert found.mean_reward.problems == 2


def test_a_policy_does_not_differ_from_itself():
    found = compare(RECORDS, RECORDS).to_json()
    assert all(difference["value"] == 0.0 and difference["interval"] == [0.0, 0.0] for difference in found.values())


def test_policies_without_a_shared_problem_are_not_compared():
    assert compare(RECORDS, [EpisodeRecord("z", True, 1.0)]).to_json()["pass_rate"] is None


@given(st.lists(episodes, max_size=30))
def test_rates_are_nested_and_intervals_surround_them(records):
    found = summarise(records)
    if not records:
        return
    assert 0.0 <= found.faster_than_eager <= found.pass_rate <= 1.0
    assert found.faster_than_compile <= found.pass_rate
    for name in ("pass_rate", "mean_reward", "geomean_vs_eager"):
        value, interval = getattr(found, name), getattr(found, f"{name}_interval")
        if interval is not None:
            assert interval.low <= value * (1 + 1e-9) + 1e-9 and value * (1 - 1e-9) - 1e-9 <= interval.high
