"""Rejection fine-tuning: which trajectories stay (paper section 3.3), and the supervised loss on them.

The filter is pure code on what the store knows of a rollout; it imports no torch. Outcome: the reward must be above a
bound. Behaviour: no malformed tool calls, and no loops (the same calls again and again). Every dropped trajectory
keeps its reason.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cuda_agent.config import RftScience

if TYPE_CHECKING:
    from torch import Tensor

LONGEST_CYCLE = 4  # calls in a repeated block that still counts as one loop


@dataclass(frozen=True)
class Trajectory:
    """What the filter needs to know of a rollout.

    Attributes:
        rollout_id: id of the rollout.
        engine: who answered.
        reward: outcome reward; None when an infrastructure error ended it.
        invalid_tool_calls: malformed or unknown calls in the whole episode.
        calls: the policy's tool calls in order, each as text that is equal for equal calls (see `call_text`).
        has_tokens: whether token arrays are stored; without them the text would have to be rendered first.
    """

    rollout_id: str
    engine: str
    reward: float | None
    invalid_tool_calls: int
    calls: tuple[str, ...]
    has_tokens: bool = True


@dataclass(frozen=True)
class Dropped:
    """A trajectory that is not learnt from, with the reason in words."""

    rollout_id: str
    rule: str  # engine | tokens | reward | malformed_calls | loop
    reason: str


@dataclass(frozen=True)
class Selection:
    """Outcome of the filter; together the two hold every trajectory once, in the order given."""

    kept: tuple[Trajectory, ...]
    dropped: tuple[Dropped, ...]


def call_text(call: Mapping[str, Any]) -> str:
    """Canonical text of a stored tool call {"name": ..., "arguments": {...}}."""
    return json.dumps([call.get("name"), call.get("arguments")], sort_keys=True, ensure_ascii=False)


def calls_of(turns: Iterable[Sequence[Mapping[str, Any]]]) -> tuple[str, ...]:
    """Canonical texts of the calls of all turns in order, for `Trajectory.calls`."""
    return tuple(call_text(call) for turn in turns for call in turn)


def longest_repeat(calls: Sequence[str], cycle: int) -> int:
    """How often a block of `cycle` calls stands in a row at most; 1 where nothing repeats, 0 where there is no block."""
    best = run = 0
    for i in range(cycle, len(calls)):
        run = run + 1 if calls[i] == calls[i - cycle] else 0
        best = max(best, run)
    return 1 + best // cycle if len(calls) >= cycle else 0


def find_loop(calls: Sequence[str], most: int) -> tuple[int, int] | None:
    """The shortest block of calls that stands more than `most` times in a row, as (calls in it, times); None if none."""
    for cycle in range(1, LONGEST_CYCLE + 1):
        times = longest_repeat(calls, cycle)
        if times > most:
            return cycle, times
    return None


def fault(trajectory: Trajectory, science: RftScience) -> Dropped | None:
    """Why a trajectory is not learnt from, or None if it is; the first rule that it breaks counts."""
    name = trajectory.rollout_id
    if trajectory.engine not in science.engines:
        return Dropped(name, "engine", f"engine {trajectory.engine} is not among {', '.join(science.engines)}")
    if not trajectory.has_tokens:
        return Dropped(name, "tokens", "no token arrays are stored")
    if trajectory.reward is None:
        return Dropped(name, "reward", "no reward: it ended in an infrastructure error")
    if not trajectory.reward > science.min_reward:
        return Dropped(name, "reward", f"reward {trajectory.reward:g} is not above {science.min_reward:g}")
    if trajectory.invalid_tool_calls > 0:
        return Dropped(name, "malformed_calls", f"{trajectory.invalid_tool_calls} malformed or unknown tool calls")
    loop = find_loop(trajectory.calls, science.max_repeated_calls)
    if loop is not None:
        return Dropped(name, "loop", f"a block of {loop[0]} identical tool calls stands {loop[1]} times in a row")
    return None


def select(trajectories: Iterable[Trajectory], science: RftScience) -> Selection:
    """Split trajectories into those to learn from and those dropped, with reasons.

    A call or block of up to four calls may stand `max_repeated_calls` times in a row with the same arguments; once
    more is a loop.
    """
    kept, dropped = [], []
    for trajectory in trajectories:
        broken = fault(trajectory, science)
        if broken is None:
            kept.append(trajectory)
        else:
            dropped.append(broken)
    return Selection(tuple(kept), tuple(dropped))


def sft_loss(logprob: "Tensor", weight: "Tensor") -> "Tensor":
    """-sum w log pi(a_t | s_t) over policy tokens, a scalar (paper equation 2).

    The paper sums over a trajectory's tokens, so all tokens weigh the same; with w = 1 / policy tokens of the batch
    this is that loss up to a constant, which AdamW does not see, and a number that can be compared between batches.
    """
    return -(weight * logprob).sum()
