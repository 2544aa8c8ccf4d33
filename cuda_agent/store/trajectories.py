"""Writing rollouts: batches, attempts, turns, token arrays and verdicts.

Invariants: every attempt is a row and none is overwritten; a position of a batch has at most one attempt without an
infrastructure error, and a late second result for it is dropped in favour of the stored one. A rollout, its turns and its
verdicts appear in one transaction; arrays beyond 1 MiB go to one blob, written before the row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy import func, insert, select, text
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from cuda_agent.errors import StoreError
from cuda_agent.store.arrays import BYTES_PER_TOKEN, TokenArrays
from cuda_agent.store.canonical import clean, clean_json, jsonable
from cuda_agent.store.session import Store
from cuda_agent.store.tables import Problem, Rollout, RolloutBatch, Turn, Verdict, new_id, now

INLINE_BYTES = 1 << 20


class VerdictLike(Protocol):
    """What the judge's verdict has; the store sits below the judge and knows it by shape only."""

    @property
    def status(self) -> str: ...
    @property
    def kind(self) -> str | None: ...
    @property
    def message(self) -> str: ...
    @property
    def reward(self) -> float | None: ...
    @property
    def candidate_ms(self) -> float | None: ...
    @property
    def eager_ms(self) -> float | None: ...
    @property
    def compile_ms(self) -> float | None: ...
    @property
    def phases(self) -> Mapping[str, Any]: ...
    @property
    def environment(self) -> Mapping[str, Any]: ...
    @property
    def submission_sha256(self) -> str: ...


@dataclass(frozen=True)
class TurnRecord:
    """One message of an episode."""

    role: str  # system | user | assistant | tool
    text: str
    tool_calls: Sequence[Mapping[str, Any]] = ()
    verdict: VerdictLike | None = None
    generate_seconds: float = 0.0
    tool_seconds: float = 0.0


@dataclass(frozen=True)
class RolloutRecord:
    """One attempt at one episode: either an outcome, or an infrastructure error."""

    position: int
    problem_id: UUID
    engine: str
    seed: int
    outcome: str | None  # status of the counted verdict, or no_submission; None with an error
    stop_reason: str | None
    reward: float | None
    error: str | None = None
    verdict: VerdictLike | None = None
    turns: Sequence[TurnRecord] = ()
    arrays: TokenArrays | None = None
    submission: Mapping[str, str] | None = None
    invalid_tool_calls: int = 0
    seconds: float = 0.0
    template_sha256: str | None = None
    flow_run_id: UUID | None = None
    task_run_id: UUID | None = None


def open_batch(
    store: Store,
    *,
    dataset_id: UUID,
    policy_version_id: UUID | None,
    engine: str,
    purpose: str,
    science: Any,
    episodes: int,
    stage_run_id: UUID | None = None,
    step: int = 0,
) -> UUID:
    """The batch of a stage run's step: the stored one after a crash, else a new row.

    Raises:
        StoreError: the database is gone.
    """
    values = {
        "id": new_id(),
        "created_at": now(),
        "stage_run_id": stage_run_id,
        "step": step,
        "dataset_id": dataset_id,
        "policy_version_id": policy_version_id,
        "engine": engine,
        "purpose": purpose,
        "science": jsonable(science),
        "episodes": episodes,
    }
    with store.session() as session:
        statement = upsert(RolloutBatch).values(values).on_conflict_do_nothing(index_elements=["stage_run_id", "step"])
        inserted: UUID | None = session.scalar(statement.returning(RolloutBatch.id))
        if inserted is not None:
            return inserted
        same = (RolloutBatch.stage_run_id == stage_run_id, RolloutBatch.step == step)
        return session.scalars(select(RolloutBatch.id).where(*same)).one()


def find_verdict(session: Session, cache_key: str) -> Verdict | None:
    """The newest verdict with this key that is not an infrastructure error."""
    wanted = (Verdict.cache_key == cache_key, Verdict.status != "infra_error")
    return session.scalars(select(Verdict).where(*wanted).order_by(Verdict.created_at.desc()).limit(1)).first()


def record_verdict(session: Session, problem_sha256: str, verdict: VerdictLike) -> UUID:
    """Add a verdict row and return its id.

    Its cache key is the judge's own (`environment["cache_key"]`); feedback has none and is never found again.
    """
    row = Verdict(
        id=new_id(),
        cache_key=str(verdict.environment.get("cache_key", "")),
        problem_sha256=problem_sha256,
        submission_sha256=verdict.submission_sha256,
        status=verdict.status,
        kind=verdict.kind,
        message=clean(verdict.message),
        reward=verdict.reward,
        candidate_ms=verdict.candidate_ms,
        eager_ms=verdict.eager_ms,
        compile_ms=verdict.compile_ms,
        phases=jsonable(verdict.phases),
        environment=jsonable(verdict.environment),
    )
    session.add(row)
    session.flush()
    return row.id


def save_rollout(store: Store, batch_id: UUID, record: RolloutRecord) -> UUID:
    """Store one attempt and return its rollout id; where the position is already finished, the stored rollout's id.

    Raises:
        StoreError: the record contradicts itself, its problem is unknown, or the store is unusable.
    """
    _check(record)
    tokens = _token_columns(store, record.arrays)
    with store.session() as session:
        place = f"{batch_id}:{record.position}"
        session.execute(text("select pg_advisory_xact_lock(hashtextextended(:place, 0))"), {"place": place})
        mine = (Rollout.batch_id == batch_id, Rollout.position == record.position)
        finished = session.scalar(select(Rollout.id).where(*mine, Rollout.error.is_(None)))
        if finished is not None:
            return finished
        attempt = (session.scalar(select(func.max(Rollout.attempt)).where(*mine)) or 0) + 1
        problem_sha256 = session.scalar(select(Problem.code_sha256).where(Problem.id == record.problem_id))
        if problem_sha256 is None:
            raise StoreError(f"problem {record.problem_id} is not in the store; import its dataset first")
        verdicts = _record_verdicts(session, record, problem_sha256)
        rollout_id = new_id()
        session.add(_rollout_row(rollout_id, batch_id, attempt, record, verdicts, tokens))
        session.flush()
        _insert_turns(session, rollout_id, record.turns, verdicts)
    return rollout_id


def _check(record: RolloutRecord) -> None:
    if (record.error is None) == (record.outcome is None):
        raise StoreError(f"rollout at position {record.position} needs either an outcome or an infrastructure error, not both")


def _token_columns(store: Store, arrays: TokenArrays | None) -> dict[str, Any]:
    """Columns of the arrays: bytes inline, or a blob beyond the limit."""
    if arrays is None:
        return {}
    if len(arrays) * BYTES_PER_TOKEN <= INLINE_BYTES:
        return {"tokens": len(arrays), **arrays.to_columns()}
    blob = store.blobs.put_bytes(arrays.pack())
    return {"tokens": len(arrays), "blob_uri": blob.uri, "blob_sha256": blob.sha256}


def _record_verdicts(session: Session, record: RolloutRecord, problem_sha256: str) -> dict[int, UUID]:
    """Rows for each distinct verdict object of the record, by id(); a cached verdict seen in two turns is one row."""
    seen = [turn.verdict for turn in record.turns] + [record.verdict]
    distinct = {id(verdict): verdict for verdict in seen if verdict is not None}
    rows: dict[int, UUID] = {}
    for key, verdict in distinct.items():
        rows[key] = record_verdict(session, problem_sha256, verdict)
    return rows


def _rollout_row(
    rollout_id: UUID, batch_id: UUID, attempt: int, record: RolloutRecord, verdicts: dict[int, UUID], tokens: dict[str, Any]
) -> Rollout:
    return Rollout(
        id=rollout_id,
        batch_id=batch_id,
        position=record.position,
        attempt=attempt,
        problem_id=record.problem_id,
        engine=record.engine,
        seed=record.seed,
        outcome=record.outcome,
        stop_reason=record.stop_reason,
        error=record.error,
        reward=record.reward,
        verdict_id=verdicts.get(id(record.verdict)),
        turns=len(record.turns),
        invalid_tool_calls=record.invalid_tool_calls,
        seconds=record.seconds,
        submission=None if record.submission is None else {name: clean(body) for name, body in record.submission.items()},
        template_sha256=record.template_sha256,
        flow_run_id=record.flow_run_id,
        task_run_id=record.task_run_id,
        **tokens,
    )


def _insert_turns(session: Session, rollout_id: UUID, turns: Sequence[TurnRecord], verdicts: dict[int, UUID]) -> None:
    rows = [
        {
            "id": new_id(),
            "created_at": now(),
            "rollout_id": rollout_id,
            "position": position,
            "role": turn.role,
            "text": clean(turn.text),
            "tool_calls": clean_json([jsonable(call) for call in turn.tool_calls]),
            "verdict_id": verdicts.get(id(turn.verdict)),
            "generate_seconds": turn.generate_seconds,
            "tool_seconds": turn.tool_seconds,
        }
        for position, turn in enumerate(turns)
    ]
    if rows:
        session.execute(insert(Turn), rows)
