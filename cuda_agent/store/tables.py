"""The tables: everything a campaign leaves behind, as SQLAlchemy 2 mappings.

Invariants: ids are UUIDv7 made by the client; rows of results are never overwritten (a new attempt or generation is a
new row); what is large is a blob whose URI and digest the row holds. sql/migrations/ creates exactly these tables.
"""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import uuid_utils.compat
from sqlalchemy import JSON, ForeignKey, Index, LargeBinary, MetaData, UniqueConstraint
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


def new_id() -> UUID:
    """A fresh UUIDv7: sorts by time, and two archives never collide."""
    return uuid_utils.compat.uuid7()


def now() -> datetime:
    """The current time with its zone."""
    return datetime.now(UTC)


class Base(DeclarativeBase):
    """Common types and constraint names, so that migrations can refer to constraints."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {
        dict[str, Any]: JSONB,
        list[str]: JSONB,
        datetime: TIMESTAMP(timezone=True),
        bytes: LargeBinary,
    }


class Row:
    """Columns of every table."""

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    created_at: Mapped[datetime] = mapped_column(default=now)


class Campaign(Row, Base):
    """One run of the campaign flow; its stage runs point back here."""

    __tablename__ = "campaign"

    name: Mapped[str]
    config: Mapped[dict[str, Any]]
    status: Mapped[str] = mapped_column(default="running")  # running | completed | failed
    flow_run_id: Mapped[UUID | None]
    start_seconds: Mapped[float] = mapped_column(default=0.0)  # its process's first seconds: services, imports
    ended_at: Mapped[datetime | None]


class StageRun(Row, Base):
    """One generation of one stage on given inputs: the unit that is retried, resumed and rerun."""

    __tablename__ = "stage_run"
    __table_args__ = (UniqueConstraint("key", "generation"), Index(None, "stage", "status"))

    key: Mapped[str]  # sha256, see store/stages.py
    generation: Mapped[int] = mapped_column(default=0)
    stage: Mapped[str]
    label: Mapped[str] = mapped_column(default="")  # tells evaluations of one campaign apart, e.g. "after rft"
    campaign_id: Mapped[UUID | None] = mapped_column(ForeignKey("campaign.id"))
    config: Mapped[dict[str, Any]]
    inputs: Mapped[dict[str, Any]]
    outputs: Mapped[dict[str, Any] | None]
    status: Mapped[str] = mapped_column(default="running")  # running | completed | failed
    message: Mapped[str] = mapped_column(default="")
    attempt: Mapped[int] = mapped_column(default=1)
    flow_run_id: Mapped[UUID | None]
    ui_url: Mapped[str | None]
    seconds: Mapped[float] = mapped_column(default=0.0)  # of work, summed over attempts
    ended_at: Mapped[datetime | None]


class CampaignStage(Base):
    """Which stage runs a campaign used, in order; a stage run found by its key may serve several campaigns."""

    __tablename__ = "campaign_stage"

    campaign_id: Mapped[UUID] = mapped_column(ForeignKey("campaign.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    stage_run_id: Mapped[UUID] = mapped_column(ForeignKey("stage_run.id"))


class Dataset(Row, Base):
    """A set of problems; immutable once complete."""

    __tablename__ = "dataset"

    name: Mapped[str]
    stage_run_id: Mapped[UUID | None] = mapped_column(ForeignKey("stage_run.id"))
    provenance: Mapped[dict[str, Any]]  # composer, seed, versions, machine
    complete: Mapped[bool] = mapped_column(default=False)


class Problem(Row, Base):
    """A candidate problem, accepted or rejected with the rule that refused it."""

    __tablename__ = "problem"
    __table_args__ = (UniqueConstraint("dataset_id", "position"), Index(None, "dataset_id", "split"))

    dataset_id: Mapped[UUID] = mapped_column(ForeignKey("dataset.id"))
    position: Mapped[int]  # order of generation in the set
    ops: Mapped[list[str]]
    data_source: Mapped[str]
    code: Mapped[str]
    code_sha256: Mapped[str]
    split: Mapped[str | None]  # train | held_out; null when rejected
    rule: Mapped[str | None]  # the rule that rejected it; null when accepted
    reason: Mapped[str | None]
    eager_ms: Mapped[float | None]
    compile_ms: Mapped[float | None]
    facts: Mapped[dict[str, Any]]  # what vetting measured


class PolicyVersion(Row, Base):
    """Immutable weights of an actor; `complete` is set last, and only complete ones are used."""

    __tablename__ = "policy_version"

    parent_id: Mapped[UUID | None] = mapped_column(ForeignKey("policy_version.id"))
    stage_run_id: Mapped[UUID | None] = mapped_column(ForeignKey("stage_run.id"))
    stage: Mapped[str]  # base | warmup | rft | ppo
    step: Mapped[int] = mapped_column(default=0)
    base_sha256: Mapped[str]
    weights_uri: Mapped[str]
    weights_sha256: Mapped[str]
    tokenizer_sha256: Mapped[str]
    template_sha256: Mapped[str]
    dtype: Mapped[str]
    complete: Mapped[bool] = mapped_column(default=False)


class CriticVersion(Row, Base):
    """Immutable weights of a critic (a backbone with a scalar head)."""

    __tablename__ = "critic_version"

    parent_id: Mapped[UUID | None] = mapped_column(ForeignKey("critic_version.id"))
    policy_version_id: Mapped[UUID] = mapped_column(ForeignKey("policy_version.id"))  # whose backbone it began from
    stage_run_id: Mapped[UUID | None] = mapped_column(ForeignKey("stage_run.id"))
    step: Mapped[int] = mapped_column(default=0)
    weights_uri: Mapped[str]
    weights_sha256: Mapped[str]
    complete: Mapped[bool] = mapped_column(default=False)


class TrainerState(Row, Base):
    """Optimisers, schedulers, RNG and data cursor after a step, for resuming."""

    __tablename__ = "trainer_state"
    __table_args__ = (UniqueConstraint("stage_run_id", "step"),)

    stage_run_id: Mapped[UUID] = mapped_column(ForeignKey("stage_run.id"))
    step: Mapped[int]
    uri: Mapped[str]
    sha256: Mapped[str]


class RolloutBatch(Row, Base):
    """Episodes of one policy version asked for together."""

    __tablename__ = "rollout_batch"
    __table_args__ = (UniqueConstraint("stage_run_id", "step"),)

    stage_run_id: Mapped[UUID | None] = mapped_column(ForeignKey("stage_run.id"))
    step: Mapped[int] = mapped_column(default=0)
    dataset_id: Mapped[UUID] = mapped_column(ForeignKey("dataset.id"))
    policy_version_id: Mapped[UUID | None] = mapped_column(ForeignKey("policy_version.id"))  # null for text engines
    engine: Mapped[str]
    purpose: Mapped[str]  # train | evaluation
    science: Mapped[dict[str, Any]]
    episodes: Mapped[int]


class Rollout(Row, Base):
    """One attempt at one episode. `position` names the episode in its batch; attempts are rows."""

    __tablename__ = "rollout"
    __table_args__ = (
        UniqueConstraint("batch_id", "position", "attempt"),
        Index(None, "batch_id", "outcome"),
        Index(None, "problem_id"),
    )

    batch_id: Mapped[UUID] = mapped_column(ForeignKey("rollout_batch.id"))
    position: Mapped[int]
    attempt: Mapped[int] = mapped_column(default=1)
    problem_id: Mapped[UUID] = mapped_column(ForeignKey("problem.id"))
    engine: Mapped[str]
    seed: Mapped[int]
    outcome: Mapped[str | None]  # status of the counted verdict, or no_submission; null on an infrastructure error
    stop_reason: Mapped[str | None]
    error: Mapped[str | None]  # infrastructure error; such an attempt trains nothing
    reward: Mapped[float | None]
    verdict_id: Mapped[UUID | None] = mapped_column(ForeignKey("verdict.id"))
    turns: Mapped[int] = mapped_column(default=0)
    invalid_tool_calls: Mapped[int] = mapped_column(default=0)
    seconds: Mapped[float] = mapped_column(default=0.0)
    submission: Mapped[dict[str, Any] | None]  # path -> text of the counted submission
    tokens: Mapped[int | None]  # length of the arrays below; null for text engines
    token_id: Mapped[bytes | None]  # int32, little-endian, like the other three
    logprob: Mapped[bytes | None]  # float32
    mask: Mapped[bytes | None]  # uint8
    turn: Mapped[bytes | None]  # int16
    blob_uri: Mapped[str | None]  # one blob of all four arrays when they exceed 1 MiB
    blob_sha256: Mapped[str | None]
    template_sha256: Mapped[str | None]
    flow_run_id: Mapped[UUID | None]
    task_run_id: Mapped[UUID | None]


class Turn(Row, Base):
    """One message of a rollout with what its tool calls returned."""

    __tablename__ = "turn"
    __table_args__ = (UniqueConstraint("rollout_id", "position"),)

    rollout_id: Mapped[UUID] = mapped_column(ForeignKey("rollout.id"))
    position: Mapped[int]
    role: Mapped[str]  # system | user | assistant | tool
    text: Mapped[str]
    # json, not jsonb, which sorts keys: training renders calls again, and arguments must stand as they were written.
    tool_calls: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    verdict_id: Mapped[UUID | None] = mapped_column(ForeignKey("verdict.id"))
    generate_seconds: Mapped[float] = mapped_column(default=0.0)
    tool_seconds: Mapped[float] = mapped_column(default=0.0)


class Verdict(Row, Base):
    """One judgement of one submission on one problem, in the form of the judge's contract."""

    __tablename__ = "verdict"
    __table_args__ = (Index(None, "cache_key"), Index(None, "problem_sha256", "submission_sha256"))

    cache_key: Mapped[str]
    problem_sha256: Mapped[str]
    submission_sha256: Mapped[str]
    status: Mapped[str]
    kind: Mapped[str | None]
    message: Mapped[str]
    reward: Mapped[float | None]
    candidate_ms: Mapped[float | None]
    eager_ms: Mapped[float | None]
    compile_ms: Mapped[float | None]
    phases: Mapped[dict[str, Any]]
    environment: Mapped[dict[str, Any]]  # backend, device, threads, torch, compiler, raw times


class Update(Row, Base):
    """Metrics of one optimiser step group (an epoch of RFT or critic pretraining, a step of PPO)."""

    __tablename__ = "update"
    __table_args__ = (UniqueConstraint("stage_run_id", "step"),)

    stage_run_id: Mapped[UUID] = mapped_column(ForeignKey("stage_run.id"))
    stage: Mapped[str]
    step: Mapped[int]
    batch_id: Mapped[UUID | None] = mapped_column(ForeignKey("rollout_batch.id"))
    policy_version_id: Mapped[UUID | None] = mapped_column(ForeignKey("policy_version.id"))
    critic_version_id: Mapped[UUID | None] = mapped_column(ForeignKey("critic_version.id"))
    metrics: Mapped[dict[str, Any]]


class Evaluation(Row, Base):
    """Summary of one evaluation batch; recomputable from its rollouts."""

    __tablename__ = "evaluation"

    stage_run_id: Mapped[UUID | None] = mapped_column(ForeignKey("stage_run.id"))
    batch_id: Mapped[UUID] = mapped_column(ForeignKey("rollout_batch.id"))
    policy_version_id: Mapped[UUID | None] = mapped_column(ForeignKey("policy_version.id"))
    label: Mapped[str]  # base | warmup | rft | ppo, or a name given by hand
    summary: Mapped[dict[str, Any]]
