"""Confidence intervals for means over episodes that cluster by problem: pure functions on numpy arrays.

The unit that was drawn at random is the problem; several episodes of one problem are not independent. Standard errors
are therefore clustered by problem, and a difference between two policies is taken problem by problem, as recommended
by Miller, "Adding Error Bars to Evals" (arXiv 2411.00640, 2024). A held-out set has few problems (16 in the
quickstart), so the normal quantile would be too narrow: the quantile is Student's t with (problems - 1) degrees of
freedom and the variance carries the factor G / (G - 1), as in Cameron and Miller, "A Practitioner's Guide to
Cluster-Robust Inference" (Journal of Human Resources 50, 2015, sections II and VI).
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A two-sided confidence interval, `low <= high`, in the unit of the estimate."""

    low: float
    high: float

    def clipped(self, low: float, high: float) -> "Interval":
        """The part of it that lies in the range that the estimate can take."""
        return Interval(min(max(self.low, low), high), max(min(self.high, high), low))


@dataclass(frozen=True)
class Difference:
    """Mean over the shared problems of (policy - reference), with its interval; null where it is not defined."""

    value: float
    interval: Interval | None
    problems: int


def mean_interval(values: Sequence[float], problems: Sequence[Hashable]) -> Interval | None:
    """Cluster-robust 95 % interval of the mean of `values`, clustered by `problems` (one entry per episode).

    With residuals r = x - mean, Var(mean) = G / (G - 1) * sum over problems g of (sum of r in g)^2 / n^2, which allows
    clusters of unequal size. None with fewer than two problems.
    """
    if len(values) != len(problems):
        raise ValueError(f"{len(values)} values for {len(problems)} problems; give one problem per value")
    _, cluster = _clusters(problems)
    clusters = int(cluster.max()) + 1 if len(cluster) else 0
    if clusters < 2:
        return None
    x = np.asarray(values, dtype=np.float64)  # [episodes]
    mean = float(x.mean())
    residual_sums = np.bincount(cluster, weights=x - mean, minlength=clusters)  # [problems]
    variance = clusters / (clusters - 1) * float(np.square(residual_sums).sum()) / len(x) ** 2
    half = t_quantile(0.5 + CONFIDENCE / 2, clusters - 1) * math.sqrt(variance)
    return Interval(mean - half, mean + half)


def rate_interval(hits: Sequence[bool], problems: Sequence[Hashable]) -> Interval | None:
    """95 % interval of a share, within [0, 1], clustered by problem.

    Where every episode agrees the formula above would claim certainty; there the exact binomial bound (Clopper and
    Pearson, Biometrika 26, 1934) is taken with the number of problems as sample size, which is the cautious choice.
    """
    clusters = len(set(problems))
    if clusters < 2:
        return None
    beyond = ((1 - CONFIDENCE) / 2) ** (1 / clusters)
    if all(hits):
        return Interval(beyond, 1.0)
    if not any(hits):
        return Interval(0.0, 1 - beyond)
    interval = mean_interval([float(hit) for hit in hits], problems)
    return interval.clipped(0.0, 1.0) if interval else None


def geometric_interval(ratios: Sequence[float], problems: Sequence[Hashable]) -> Interval | None:
    """95 % interval of a geometric mean of positive ratios: that of the mean logarithm, carried back."""
    interval = mean_interval([math.log(ratio) for ratio in ratios], problems)
    return Interval(math.exp(interval.low), math.exp(interval.high)) if interval else None


def geometric_mean(ratios: Sequence[float]) -> float | None:
    """Geometric mean of positive ratios; None of nothing."""
    if not ratios:
        return None
    return math.exp(math.fsum(math.log(ratio) for ratio in ratios) / len(ratios))


def paired_difference(policy: Mapping[Hashable, float], reference: Mapping[Hashable, float]) -> Difference | None:
    """Paired difference of two policies by problem, from each policy's mean on each problem.

    Only problems that both have count, each with the same weight. The interval is that of a paired t-test
    (Miller 2024, section 4.2); it is null with one shared problem. None without any.
    """
    shared = [problem for problem in policy if problem in reference]
    if not shared:
        return None
    differences = [policy[problem] - reference[problem] for problem in shared]
    return Difference(math.fsum(differences) / len(shared), mean_interval(differences, shared), len(shared))


def problem_means(values: Sequence[float], problems: Sequence[Hashable]) -> dict[Hashable, float]:
    """Mean value on each problem."""
    names, cluster = _clusters(problems)
    if not names:
        return {}
    sums = np.bincount(cluster, weights=np.asarray(values, dtype=np.float64), minlength=len(names))
    counts = np.bincount(cluster, minlength=len(names))
    return {name: float(total / count) for name, total, count in zip(names, sums, counts, strict=True)}


@lru_cache(maxsize=256)
def t_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t distribution, for `probability` in (0.5, 1) and whole degrees of freedom from 1 up."""
    low, high = 0.0, 1.0
    while t_cdf(high, degrees) < probability:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, degrees) < probability else (low, middle)
    return (low + high) / 2


def t_cdf(t: float, degrees: int) -> float:
    """P(T <= t) for t >= 0: the finite sums of Abramowitz and Stegun, 26.7.3 (odd) and 26.7.4 (even degrees)."""
    theta = math.atan2(t, math.sqrt(degrees))
    cos2 = math.cos(theta) ** 2
    odd = degrees % 2
    term = math.cos(theta) if odd else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(2 + odd, degrees - 1, 2):
        term *= cos2 * (k - 1) / k
        total += term
    within = 2 / math.pi * (theta + math.sin(theta) * total) if odd else math.sin(theta) * total
    return 0.5 + within / 2


def _clusters(problems: Sequence[Hashable]) -> tuple[list[Hashable], "np.ndarray[tuple[int], np.dtype[np.intp]]"]:
    """The distinct problems in order of appearance, and the index of each episode's problem among them."""
    index: dict[Hashable, int] = {}
    cluster = np.array([index.setdefault(problem, len(index)) for problem in problems], dtype=np.intp)
    return list(index), cluster
