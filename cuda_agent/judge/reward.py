"""The paper's reward (section 3.2), pure: -1, 1, 2 or 3, or None where a verdict must train nothing."""

NO_REWARD = frozenset({"infra_error", "problem_invalid"})


def faster(candidate_ms: float, baseline_ms: float, milestone: float) -> bool:
    """Whether (t0 - t) / t0 exceeds the milestone; written without the quotient, so that exactly 5 % does not."""
    return candidate_ms < (1.0 - milestone) * baseline_ms


def reward(
    status: str, candidate_ms: float | None, eager_ms: float | None, compile_ms: float | None, milestone: float = 0.05
) -> float | None:
    """Reward of a verdict from its status and median times in milliseconds.

    -1 unless correct; 3 if more than `milestone` faster than eager and torch.compile; 2 if than eager only, or than eager
    where torch.compile has no time; else 1. None for statuses that train nothing, and for a correct one without times.
    """
    if status in NO_REWARD:
        return None
    if status != "correct":
        return -1.0
    if candidate_ms is None or eager_ms is None:
        return None
    if not faster(candidate_ms, eager_ms, milestone):
        return 1.0
    if compile_ms is None or not faster(candidate_ms, compile_ms, milestone):
        return 2.0
    return 3.0
