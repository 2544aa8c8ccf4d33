"""A rollout as a person reads it: what was asked, said, called and answered, and what the judge found.

`read_rollout` fetches everything once; the rest is pure. Tool calls are shown in full with their real line ends rather than
as the JSON that the policy wrote, so the raw `<tool_call>` blocks are left out where they were understood.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import defer

from cuda_agent.errors import ConfigError
from cuda_agent.store.tables import PolicyVersion, Problem, Rollout, RolloutBatch, StageRun, Turn, Verdict

if TYPE_CHECKING:
    from cuda_agent.store.session import Store

RULE = "─" * 100
_TOOL_CALL = re.compile(r"\s*<tool_call>.*?(</tool_call>|\Z)\s*", re.DOTALL)


@dataclass(frozen=True)
class RolloutPage:
    """One attempt at one episode with everything it refers to; token arrays are not loaded."""

    rollout: Rollout
    problem: Problem
    batch: RolloutBatch
    policy: PolicyVersion | None
    stage: StageRun | None
    verdict: Verdict | None
    turns: tuple[Turn, ...]
    verdicts: Mapping[UUID, Verdict]  # of the turns


def read_rollout(store: "Store", rollout_id: UUID) -> RolloutPage:
    """Everything about a rollout.

    Raises:
        ConfigError: no rollout has this id.
        StoreError: the store is not reachable.
    """
    arrays = (Rollout.token_id, Rollout.logprob, Rollout.mask, Rollout.turn)
    found = (
        select(Rollout, Problem, RolloutBatch, PolicyVersion, StageRun)
        .join(Problem, Problem.id == Rollout.problem_id)
        .join(RolloutBatch, RolloutBatch.id == Rollout.batch_id)
        .outerjoin(PolicyVersion, PolicyVersion.id == RolloutBatch.policy_version_id)
        .outerjoin(StageRun, StageRun.id == RolloutBatch.stage_run_id)
        .where(Rollout.id == rollout_id)
        .options(*(defer(column, raiseload=True) for column in arrays))
    )
    with store.session() as session:
        row = session.execute(found).first()
        if row is None:
            raise ConfigError(f"rollout {rollout_id} is not in the store; cuda-agent rollouts lists those that are")
        rollout, problem, batch, policy, stage = row
        turns = session.scalars(select(Turn).where(Turn.rollout_id == rollout_id).order_by(Turn.position)).all()
        wanted = {turn.verdict_id for turn in turns} | {rollout.verdict_id}
        verdicts = {verdict.id: verdict for verdict in session.scalars(select(Verdict).where(Verdict.id.in_(wanted)))}
        counted = verdicts.get(rollout.verdict_id) if rollout.verdict_id else None
        return RolloutPage(rollout, problem, batch, policy, stage, counted, tuple(turns), verdicts)


def rollout_text(page: RolloutPage) -> str:
    """The whole rollout as plain text for a terminal: facts, the counted verdict, every turn, the submission."""
    facts = "\n".join(f"{name:<12} {value}" for name, value in rollout_facts(page))
    blocks = [facts]
    for turn in page.turns:
        blocks.append(f"{RULE}\n{turn_title(page, turn)}\n\n{turn_text(turn)}")
    for path, text in sorted((page.rollout.submission or {}).items()):
        blocks.append(f"{RULE}\nsubmission: {path}\n\n{text}")
    return "\n".join(blocks).rstrip() + "\n"


def rollout_facts(page: RolloutPage) -> list[tuple[str, str]]:
    """Name and value of what the head of a transcript says; what is unknown is left out."""
    rollout, verdict = page.rollout, page.verdict
    facts = [
        ("rollout", str(rollout.id)),
        ("outcome", rollout.outcome or "infrastructure error"),
        ("reward", _number(rollout.reward)),
        ("stopped by", rollout.stop_reason),
        ("error", rollout.error),
        ("problem", f"{' → '.join(page.problem.ops)} ({page.problem.data_source}, {page.problem.id})"),
        ("policy", f"{page.policy.stage} step {page.policy.step} ({page.policy.id})" if page.policy else None),
        ("engine", rollout.engine),
        ("episode", f"{rollout.position} of batch {page.batch.id}, {page.batch.purpose}, attempt {rollout.attempt}"),
        ("seed", str(rollout.seed)),
        ("tokens", str(rollout.tokens) if rollout.tokens is not None else None),
        ("bad calls", str(rollout.invalid_tool_calls) if rollout.invalid_tool_calls else None),
        ("seconds", f"{rollout.seconds:.1f}"),
        *(verdict_facts(verdict) if verdict else []),
    ]
    return [(name, value) for name, value in facts if value is not None]


def verdict_facts(verdict: Verdict) -> list[tuple[str, str]]:
    """The judge's findings as name and value."""
    times = ((name, getattr(verdict, f"{name}_ms")) for name in ("candidate", "eager", "compile"))
    shown = [f"{name} {value:.3f}" for name, value in times if value is not None]
    phases = [f"{name} {value:.2f}" for name, value in verdict.phases.items() if isinstance(value, int | float)]
    return [
        ("verdict", verdict.status if verdict.kind is None else f"{verdict.status} ({verdict.kind})"),
        *([("message", verdict.message)] if verdict.message else []),
        *([("times ms", ", ".join(shown))] if shown else []),
        *([("speed-up", speedups)] if (speedups := verdict_speedups(verdict)) else []),
        *([("judge s", ", ".join(phases))] if phases else []),
    ]


def verdict_speedups(verdict: Verdict) -> str:
    """Speed-ups against both baselines as far as their times are known."""
    if not verdict.candidate_ms:
        return ""
    baselines = (("eager", verdict.eager_ms), ("torch.compile", verdict.compile_ms))
    return ", ".join(f"{baseline / verdict.candidate_ms:.2f}× {name}" for name, baseline in baselines if baseline)


def turn_title(page: RolloutPage, turn: Turn) -> str:
    """One line: number, role, what was called, seconds, and the verdict that the turn earned."""
    calls = ", ".join(str(call.get("name", "?")) for call in turn.tool_calls)
    seconds = turn.generate_seconds + turn.tool_seconds
    verdict = page.verdicts.get(turn.verdict_id) if turn.verdict_id else None
    parts = [
        f"{turn.position} {turn.role}",
        f"calls {calls}" if calls else "",
        f"{seconds:.1f} s" if seconds else "",
        f"judged {verdict.status}, reward {_number(verdict.reward)}" if verdict else "",
    ]
    return " · ".join(part for part in parts if part)


def turn_text(turn: Turn) -> str:
    """The turn's text, then its tool calls readably."""
    text = _TOOL_CALL.sub("\n", turn.text).strip() if turn.tool_calls else turn.text.strip()
    return "\n\n".join(part for part in (text, *(call_text(call) for call in turn.tool_calls)) if part)


def call_text(call: Mapping[str, Any]) -> str:
    """A tool call: short arguments on its line, longer ones below with their own line ends."""
    arguments = call.get("arguments")
    if not isinstance(arguments, Mapping):
        return f"▶ {call.get('name', '?')} {json.dumps(arguments, ensure_ascii=False)}"
    short = [f"{name}={_plain(value)}" for name, value in arguments.items() if not _is_long(value)]
    long = [f"{name}:\n{_plain(value)}" for name, value in arguments.items() if _is_long(value)]
    return "\n".join([" ".join([f"▶ {call.get('name', '?')}", *short]), *long])


def shorten(text: str, limit: int) -> str:
    """Head and tail of a text longer than `limit` characters, with a note of how much is left out between them."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head]}\n… {len(text) - head - tail:,} characters left out …\n{text[len(text) - tail :]}"


def _is_long(value: Any) -> bool:
    text = _plain(value)
    return "\n" in text or len(text) > 80


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"
