"""Reading side: what flows, training and the report ask of the store.

Rows come back detached and readable. Lists are in a fixed order (position, then time), so that the same question gives
the same answer on every machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import Session, defer

from cuda_agent.errors import StoreError
from cuda_agent.store.arrays import DTYPES, TokenArrays
from cuda_agent.store.session import Store
from cuda_agent.store.tables import (
    CriticVersion,
    Dataset,
    PolicyVersion,
    Problem,
    Rollout,
    RolloutBatch,
    StageRun,
    TrainerState,
    Turn,
    Verdict,
)

Versioned = TypeVar("Versioned", Dataset, PolicyVersion, CriticVersion)
_ARRAY_COLUMNS = (Rollout.token_id, Rollout.logprob, Rollout.mask, Rollout.turn)
_CHUNK = 256  # rollouts whose arrays are read in one query


@dataclass(frozen=True)
class ProblemView:
    """What an episode needs of an accepted problem."""

    id: UUID
    position: int
    ops: tuple[str, ...]
    data_source: str
    code: str
    code_sha256: str
    split: str
    eager_ms: float | None
    compile_ms: float | None


@dataclass(frozen=True)
class BatchView:
    """A rollout batch as it was asked for."""

    id: UUID
    stage_run_id: UUID | None
    step: int
    dataset_id: UUID
    policy_version_id: UUID | None
    engine: str
    purpose: str
    science: dict[str, Any]
    episodes: int


@dataclass(frozen=True)
class RolloutView:
    """The result of one finished rollout, without its arrays and turns."""

    id: UUID
    batch_id: UUID
    position: int
    attempt: int
    problem_id: UUID
    engine: str
    seed: int
    outcome: str
    stop_reason: str | None
    reward: float | None
    verdict_id: UUID | None
    turns: int
    invalid_tool_calls: int
    seconds: float
    tokens: int | None


@dataclass(frozen=True)
class Episode:
    """A finished rollout with its arrays, for training."""

    rollout: RolloutView
    arrays: TokenArrays


def dataset_problems(store: Store, dataset_id: UUID, split: str | None = None) -> list[ProblemView]:
    """Accepted problems of a complete dataset, of one split or both, in order of generation.

    Raises:
        StoreError: there is no such complete dataset.
    """
    accepted = (Problem.dataset_id == dataset_id, Problem.split.is_not(None) if split is None else Problem.split == split)
    with store.session() as session:
        complete(session, Dataset, dataset_id)
        rows = session.scalars(select(Problem).where(*accepted).order_by(Problem.position)).all()
    return [_problem(row) for row in rows]


def _problem(row: Problem) -> ProblemView:
    assert row.split is not None
    return ProblemView(
        id=row.id,
        position=row.position,
        ops=tuple(row.ops),
        data_source=row.data_source,
        code=row.code,
        code_sha256=row.code_sha256,
        split=row.split,
        eager_ms=row.eager_ms,
        compile_ms=row.compile_ms,
    )


def complete(session: Session, table: type[Versioned], row_id: UUID) -> Versioned:
    """The row, which must exist and be complete.

    Raises:
        StoreError: it does not or is not.
    """
    row = session.get(table, row_id)
    if row is None:
        raise StoreError(f"{table.__tablename__} {row_id} is not in this store; check the id and the database")
    if not row.complete:
        raise StoreError(f"{table.__tablename__} {row_id} is not complete; rerun the stage that makes it")
    return row


def get_policy(store: Store, policy_version_id: UUID) -> PolicyVersion:
    """A complete policy version. Raises StoreError as `complete` does."""
    with store.session() as session:
        return complete(session, PolicyVersion, policy_version_id)


def get_critic(store: Store, critic_version_id: UUID) -> CriticVersion:
    """A complete critic version. Raises StoreError as `complete` does."""
    with store.session() as session:
        return complete(session, CriticVersion, critic_version_id)


def latest_policy(store: Store, stage: str | None = None) -> UUID | None:
    """The newest complete policy version, of one stage or any."""
    query = (
        select(PolicyVersion.id)
        .where(PolicyVersion.complete)
        .order_by(PolicyVersion.created_at.desc(), PolicyVersion.step.desc())
    )
    if stage is not None:
        query = query.where(PolicyVersion.stage == stage)
    with store.session() as session:
        return session.scalar(query.limit(1))


def stage_policies(store: Store, stage_run_id: UUID) -> list[PolicyVersion]:
    """Complete policy versions that a stage run made, by step."""
    mine = (PolicyVersion.stage_run_id == stage_run_id, PolicyVersion.complete)
    with store.session() as session:
        return list(session.scalars(select(PolicyVersion).where(*mine).order_by(PolicyVersion.step)))


def stage_critics(store: Store, stage_run_id: UUID) -> list[CriticVersion]:
    """Complete critic versions that a stage run made, by step."""
    mine = (CriticVersion.stage_run_id == stage_run_id, CriticVersion.complete)
    with store.session() as session:
        return list(session.scalars(select(CriticVersion).where(*mine).order_by(CriticVersion.step)))


def latest_trainer_state(store: Store, stage_run_id: UUID) -> TrainerState | None:
    """The trainer state of a stage run's last saved step."""
    query = select(TrainerState).where(TrainerState.stage_run_id == stage_run_id).order_by(TrainerState.step.desc()).limit(1)
    with store.session() as session:
        return session.scalars(query).first()


def get_stage_run(store: Store, stage_run_id: UUID) -> StageRun:
    """One stage run.

    Raises:
        StoreError: there is none with this id.
    """
    with store.session() as session:
        row = session.get(StageRun, stage_run_id)
    if row is None:
        raise StoreError(f"stage run {stage_run_id} is not in this store; check the id and the database")
    return row


def get_batch(store: Store, batch_id: UUID) -> BatchView:
    """One rollout batch.

    Raises:
        StoreError: there is none with this id.
    """
    with store.session() as session:
        row = session.get(RolloutBatch, batch_id)
    if row is None:
        raise StoreError(f"rollout batch {batch_id} is not in this store; check the id and the database")
    return BatchView(
        id=row.id,
        stage_run_id=row.stage_run_id,
        step=row.step,
        dataset_id=row.dataset_id,
        policy_version_id=row.policy_version_id,
        engine=row.engine,
        purpose=row.purpose,
        science=row.science,
        episodes=row.episodes,
    )


def finished_rollouts(store: Store, batch_ids: UUID | Sequence[UUID]) -> list[RolloutView]:
    """Rollouts without an infrastructure error, by batch and position: at most one each."""
    ids = [batch_ids] if isinstance(batch_ids, UUID) else list(batch_ids)
    query = select(Rollout).where(Rollout.batch_id.in_(ids), Rollout.error.is_(None)).order_by(Rollout.batch_id, Rollout.position)
    with store.session() as session:
        rows = session.scalars(query.options(*(defer(column) for column in _ARRAY_COLUMNS), defer(Rollout.submission))).all()
        return [_rollout(row) for row in rows]


def finished_positions(store: Store, batch_id: UUID) -> dict[int, RolloutView]:
    """Finished rollouts of a batch by position: what a resumed batch need not sample again."""
    return {rollout.position: rollout for rollout in finished_rollouts(store, batch_id)}


def finished_rollout(store: Store, batch_id: UUID, position: int) -> RolloutView | None:
    """The finished rollout at one position, if there is one."""
    mine = (Rollout.batch_id == batch_id, Rollout.position == position, Rollout.error.is_(None))
    with store.session() as session:
        row = session.scalars(select(Rollout).where(*mine).options(*(defer(column) for column in _ARRAY_COLUMNS))).first()
        return None if row is None else _rollout(row)


def sampling_seconds(store: Store, batch_id: UUID) -> float | None:
    """Seconds from the start of a batch's first finished episode to the end of its last one; None without any."""
    begin = func.min(func.extract("epoch", Rollout.created_at) - Rollout.seconds)
    query = select(func.max(func.extract("epoch", Rollout.created_at)) - begin)
    with store.session() as session:
        found = session.scalar(query.where(Rollout.batch_id == batch_id, Rollout.error.is_(None)))
    return None if found is None else float(found)


def failed_attempts(store: Store, batch_id: UUID) -> dict[int, int]:
    """Attempts that ended in an infrastructure error, by position."""
    query = select(Rollout.position, func.count()).where(Rollout.batch_id == batch_id, Rollout.error.is_not(None))
    with store.session() as session:
        return {position: count for position, count in session.execute(query.group_by(Rollout.position))}


def _rollout(row: Rollout) -> RolloutView:
    assert row.outcome is not None
    return RolloutView(
        id=row.id,
        batch_id=row.batch_id,
        position=row.position,
        attempt=row.attempt,
        problem_id=row.problem_id,
        engine=row.engine,
        seed=row.seed,
        outcome=row.outcome,
        stop_reason=row.stop_reason,
        reward=row.reward,
        verdict_id=row.verdict_id,
        turns=row.turns,
        invalid_tool_calls=row.invalid_tool_calls,
        seconds=row.seconds,
        tokens=row.tokens,
    )


def load_arrays(store: Store, rollout_ids: Sequence[UUID]) -> dict[UUID, TokenArrays]:
    """Token arrays by rollout id; rollouts of text engines have none and are left out. Digests of blobs are checked.

    Raises:
        StoreError: a blob is missing or damaged, or the database is gone.
    """
    arrays: dict[UUID, TokenArrays] = {}
    for start in range(0, len(rollout_ids), _CHUNK):
        query = select(Rollout.id, Rollout.tokens, Rollout.blob_uri, Rollout.blob_sha256, *_ARRAY_COLUMNS)
        with store.session() as session:
            rows = session.execute(query.where(Rollout.id.in_(rollout_ids[start : start + _CHUNK]))).all()
        for row in rows:
            if row.tokens is None:
                continue
            if row.blob_uri is not None:
                arrays[row.id] = TokenArrays.unpack(store.blobs.get_bytes(row.blob_uri, row.blob_sha256), row.tokens)
            else:
                arrays[row.id] = TokenArrays.from_columns({name: getattr(row, name) for name in DTYPES})
    return arrays


def batch_episodes(store: Store, batch_ids: UUID | Sequence[UUID]) -> list[Episode]:
    """Finished rollouts of token engines that carry a reward, with their arrays, by batch and position.

    Raises:
        StoreError: a blob is missing or damaged, or the database is gone.
    """
    rollouts = [rollout for rollout in finished_rollouts(store, batch_ids) if rollout.reward is not None]
    arrays = load_arrays(store, [rollout.id for rollout in rollouts if rollout.tokens is not None])
    return [Episode(rollout, arrays[rollout.id]) for rollout in rollouts if rollout.id in arrays]


def rollout_turns(store: Store, rollout_ids: Sequence[UUID]) -> dict[UUID, list[Turn]]:
    """Messages by rollout id, in order."""
    turns: dict[UUID, list[Turn]] = {rollout_id: [] for rollout_id in rollout_ids}
    for start in range(0, len(rollout_ids), _CHUNK):
        wanted = Turn.rollout_id.in_(rollout_ids[start : start + _CHUNK])
        with store.session() as session:
            for row in session.scalars(select(Turn).where(wanted).order_by(Turn.rollout_id, Turn.position)):
                turns[row.rollout_id].append(row)
    return turns


def verdicts(store: Store, verdict_ids: Sequence[UUID]) -> dict[UUID, Verdict]:
    """Verdict rows by id."""
    with store.session() as session:
        return {row.id: row for row in session.scalars(select(Verdict).where(Verdict.id.in_(verdict_ids)))}
