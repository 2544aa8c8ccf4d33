"""The paper's reward (section 3.2), pure: -1, 1, 2 or 3, or None where a verdict must train nothing."""

NO_REWARD = frozenset({"infra_error", "problem_invalid"})

Interval = tuple[float, float]


def faster(ratio: Interval, milestone: float) -> bool:
    """Whether (t0 - t) / t0 exceeds the milestone beyond doubt, from the interval of t / t0."""
    return ratio[1] < 1.0 - milestone


def reward(status: str, vs_eager: Interval | None, vs_compile: Interval | None, milestone: float = 0.05) -> float | None:
    """Reward of a verdict from its status and the intervals of the time ratios candidate / baseline.

    -1 unless correct; 3 if more than `milestone` faster than eager and torch.compile; 2 if than eager only, or than eager
    where torch.compile has no time; else 1. None for statuses that train nothing, and for a correct one without times.
    """
    if status in NO_REWARD:
        return None
    if status != "correct":
        return -1.0
    if vs_eager is None:
        return None
    if not faster(vs_eager, milestone):
        return 1.0
    if vs_compile is None or not faster(vs_compile, milestone):
        return 2.0
    return 3.0
