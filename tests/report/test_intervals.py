"""Intervals against hand-computed numbers, published quantiles, and properties that must hold for any input."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuda_agent.report.intervals import (
    Interval,
    geometric_interval,
    geometric_mean,
    mean_interval,
    paired_difference,
    problem_means,
    rate_interval,
    t_cdf,
    t_quantile,
)

FLOATS = st.floats(-100, 100, allow_nan=False)


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [(1, 12.706205), (2, 4.302653), (3, 3.182446), (4, 2.776445), (15, 2.131450), (30, 2.042272), (999, 1.962341)],
)
def test_t_quantile_agrees_with_the_published_table(degrees, expected):
    assert t_quantile(0.975, degrees) == pytest.approx(expected, abs=1e-6)


@given(st.integers(1, 60), st.floats(0.51, 0.999))
def test_quantile_inverts_the_distribution(degrees, probability):
    assert t_cdf(t_quantile(probability, degrees), degrees) == pytest.approx(probability, abs=1e-9)


def test_clustered_interval_by_hand():
    # problems a, b, c with values (1, 1), (0, 0), (1, 0): mean 0.5; residual sums 1, -1, 0
    # variance = 3/2 * (1 + 1 + 0) / 36 = 1/12; t(0.975, 2) = 4.302653
    half = 4.302653 * math.sqrt(1 / 12)
    interval = mean_interval([1, 1, 0, 0, 1, 0], ["a", "a", "b", "b", "c", "c"])
    assert interval is not None
    assert interval.low == pytest.approx(0.5 - half, abs=1e-6)
    assert interval.high == pytest.approx(0.5 + half, abs=1e-6)


def test_one_episode_per_problem_gives_the_usual_t_interval():
    # 1, 2, 3, 4: mean 2.5, sample variance 5/3, standard error sqrt(5/12); t(0.975, 3) = 3.182446
    half = 3.182446 * math.sqrt(5 / 12)
    interval = mean_interval([1, 2, 3, 4], range(4))
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((2.5 - half, 2.5 + half), abs=1e-6)


def test_unequal_clusters_by_hand():
    # a: 0, 0, 3; b: 1: mean 1; residual sums 0 and 0
    assert mean_interval([0, 0, 3, 1], ["a", "a", "a", "b"]) == Interval(1.0, 1.0)


@pytest.mark.parametrize(("values", "problems"), [([], []), ([1.0], ["a"]), ([1.0, 0.0], ["a", "a"])])
def test_fewer_than_two_problems_have_no_interval(values, problems):
    assert mean_interval(values, problems) is None
    assert rate_interval([bool(value) for value in values], problems) is None


def test_one_problem_per_value_is_demanded():
    with pytest.raises(ValueError, match="one problem per value"):
        mean_interval([1.0, 2.0], ["a"])


def test_unanimous_rates_claim_no_certainty():
    # Clopper-Pearson with 4 problems: 0.025 ** (1/4) = 0.397635
    problems = ["a", "b", "c", "d"] * 2
    everything, nothing = rate_interval([True] * 8, problems), rate_interval([False] * 8, problems)
    assert everything is not None and nothing is not None
    assert (everything.low, everything.high) == pytest.approx((0.397635, 1.0), abs=1e-6)
    assert (nothing.low, nothing.high) == pytest.approx((0.0, 0.602365), abs=1e-6)


def test_geometric_mean_and_its_interval_by_hand():
    # logs 0 and ln 4: mean ln 2, standard error ln 2; t(0.975, 1) = 12.706205
    interval = geometric_interval([1.0, 4.0], ["a", "b"])
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert interval is not None
    assert interval.low == pytest.approx(2.0 ** (1 - 12.706205), rel=1e-5)
    assert interval.high == pytest.approx(2.0 ** (1 + 12.706205), rel=1e-5)
    assert geometric_mean([]) is None


def test_paired_difference_by_hand():
    # differences 1, 0.5, 0 on the shared problems: mean 0.5, standard error 0.5 / sqrt(3)
    found = paired_difference({"a": 2.0, "b": 1.5, "c": 1.0, "x": 9.0}, {"a": 1.0, "b": 1.0, "c": 1.0, "y": 9.0})
    half = 4.302653 * 0.5 / math.sqrt(3)
    assert found is not None and found.interval is not None
    assert (found.value, found.problems) == (pytest.approx(0.5), 3)
    assert (found.interval.low, found.interval.high) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-6)


def test_no_shared_problem_has_no_difference():
    assert paired_difference({"a": 1.0}, {"b": 1.0}) is None


def test_pairing_removes_what_problems_have_in_common():
    easy_to_hard = {f"p{i}": float(i) for i in range(10)}
    better = {problem: value + 0.5 for problem, value in easy_to_hard.items()}
    found = paired_difference(better, easy_to_hard)
    assert found is not None and found.interval is not None
    assert found.interval.low > 0.49


def test_problem_means_keep_the_order_of_appearance():
    assert problem_means([1.0, 3.0, 5.0], ["b", "b", "a"]) == {"b": 2.0, "a": 5.0}
    assert problem_means([], []) == {}


@given(st.lists(st.tuples(FLOATS, st.integers(0, 5)), min_size=1, max_size=40))
def test_interval_surrounds_the_mean_whatever_the_order(pairs):
    values, problems = [value for value, _ in pairs], [problem for _, problem in pairs]
    interval = mean_interval(values, problems)
    if interval is None:
        assert len(set(problems)) < 2
        return
    mean = sum(values) / len(values)
    assert interval.low <= mean + 1e-9 and interval.high >= mean - 1e-9
    turned = mean_interval(values[::-1], problems[::-1])
    assert turned is not None
    assert (turned.low, turned.high) == pytest.approx((interval.low, interval.high), abs=1e-7)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 8)), max_size=40))
def test_rates_stay_within_zero_and_one(pairs):
    interval = rate_interval([hit for hit, _ in pairs], [problem for _, problem in pairs])
    if interval is not None:
        share = sum(hit for hit, _ in pairs) / len(pairs)
        assert 0.0 <= interval.low <= share + 1e-9
        assert share - 1e-9 <= interval.high <= 1.0


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=20))
def test_geometric_mean_lies_between_the_extremes(ratios):
    found = geometric_mean(ratios)
    assert found is not None
    assert min(ratios) * (1 - 1e-9) <= found <= max(ratios) * (1 + 1e-9)
