"""The report's reads: rows of one campaign as small frozen records, each by one query.

Nothing is computed here beyond counting in SQL. An episode is one (batch, position); of its attempts the last one with an
outcome counts, and one with infrastructure errors only has no record.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from cuda_agent.errors import ConfigError, StoreError
from cuda_agent.report.statistics import EpisodeRecord
from cuda_agent.store.tables import (
    Campaign,
    CampaignStage,
    Dataset,
    Evaluation,
    PolicyVersion,
    Problem,
    Rollout,
    RolloutBatch,
    StageRun,
    Update,
    Verdict,
)

INFRA_ERROR = "infra_error"


def find_campaign(session: Session, campaign_id: UUID | None) -> Campaign:
    """The campaign with this id, or the one begun last.

    Raises:
        ConfigError: no campaign has this id.
        StoreError: no id was given and the store holds no campaign.
    """
    if campaign_id is not None:
        found = session.get(Campaign, campaign_id)
        if found is None:
            raise ConfigError(f"campaign {campaign_id} is not in the store; run cuda-agent report without an id for the last one")
        return found
    last = session.scalars(select(Campaign).order_by(Campaign.created_at.desc(), Campaign.id.desc()).limit(1)).first()
    if last is None:
        raise StoreError("the store holds no campaign yet; run make quickstart, or start one from the dashboard")
    return last


def stage_runs(session: Session, campaign_id: UUID) -> list[StageRun]:
    """The campaign's stage runs in order; one that began and has no place in the list yet comes last."""
    listed = session.scalars(
        select(StageRun)
        .join(CampaignStage, CampaignStage.stage_run_id == StageRun.id)
        .where(CampaignStage.campaign_id == campaign_id)
        .order_by(CampaignStage.position)
    ).all()
    unlisted = session.scalars(
        select(StageRun)
        .where(
            StageRun.campaign_id == campaign_id,
            StageRun.status != "completed",
            StageRun.id.not_in([run.id for run in listed]),
        )
        .order_by(StageRun.created_at, StageRun.id)
    ).all()
    return [*listed, *unlisted]


def problem_counts(
    session: Session, stage_ids: Sequence[UUID], batch_ids: Sequence[UUID]
) -> list[tuple[str | None, str | None, int]]:
    """(split, rejecting rule, count) over the sets that the campaign made or, if it made none, drew problems from."""
    made = list(session.scalars(select(Dataset.id).where(Dataset.stage_run_id.in_(stage_ids))))
    used = made or list(session.scalars(select(RolloutBatch.dataset_id).where(RolloutBatch.id.in_(batch_ids)).distinct()))
    counted = (
        select(Problem.split, Problem.rule, func.count())
        .where(Problem.dataset_id.in_(used))
        .group_by(Problem.split, Problem.rule)
        .order_by(Problem.split, Problem.rule)
    )
    return [(split, rule, count) for split, rule, count in session.execute(counted)]


@dataclass(frozen=True)
class BatchOutcomes:
    """How many attempts of one batch ended in one outcome, by one engine."""

    batch_id: UUID
    purpose: str
    engine: str
    outcome: str
    attempts: int


def outcomes(session: Session, batch_ids: Sequence[UUID]) -> list[BatchOutcomes]:
    """Every attempt of the batches, counted; an attempt without an outcome is an infrastructure error."""
    outcome = func.coalesce(Rollout.outcome, INFRA_ERROR)
    counted = (
        select(Rollout.batch_id, RolloutBatch.purpose, Rollout.engine, outcome, func.count())
        .join(RolloutBatch, RolloutBatch.id == Rollout.batch_id)
        .where(Rollout.batch_id.in_(batch_ids))
        .group_by(Rollout.batch_id, RolloutBatch.purpose, Rollout.engine, outcome)
    )
    return [BatchOutcomes(*row) for row in session.execute(counted)]


def batches(session: Session, stage_ids: Sequence[UUID]) -> list[RolloutBatch]:
    """The rollout batches of these stage runs by step."""
    found = select(RolloutBatch).where(RolloutBatch.stage_run_id.in_(stage_ids))
    return list(session.scalars(found.order_by(RolloutBatch.step, RolloutBatch.id)))


def updates(session: Session, stage_ids: Sequence[UUID]) -> list[Update]:
    """The optimiser steps of these stage runs, in the order of the stages and of their steps."""
    place = {stage_id: position for position, stage_id in enumerate(stage_ids)}
    found = session.scalars(select(Update).where(Update.stage_run_id.in_(stage_ids)))
    return sorted(found, key=lambda update: (place[update.stage_run_id], update.step))


@dataclass(frozen=True)
class EvaluationRow:
    """An evaluation with the policy it is about (null for text engines)."""

    evaluation: Evaluation
    policy: PolicyVersion | None


def evaluations(session: Session, stage_ids: Sequence[UUID]) -> list[EvaluationRow]:
    """The evaluations of these stage runs in the stages' order; the last row of a batch counts."""
    place = {stage_id: position for position, stage_id in enumerate(stage_ids)}
    found = session.execute(
        select(Evaluation, PolicyVersion)
        .outerjoin(PolicyVersion, PolicyVersion.id == Evaluation.policy_version_id)
        .where(Evaluation.stage_run_id.in_(stage_ids))
        .order_by(Evaluation.created_at, Evaluation.id)
    )
    by_batch = {evaluation.batch_id: EvaluationRow(evaluation, policy) for evaluation, policy in found}
    return sorted(by_batch.values(), key=lambda row: place.get(row.evaluation.stage_run_id, len(place)))  # type: ignore[arg-type]


def episode_records(session: Session, batch_ids: Iterable[UUID]) -> dict[UUID, list[EpisodeRecord]]:
    """The finished episodes of each batch by position, without those that only have infrastructure errors."""
    wanted = list(batch_ids)
    found = session.execute(
        select(
            Rollout.batch_id,
            Rollout.problem_id,
            Rollout.outcome,
            Rollout.reward,
            Verdict.candidate_ms,
            Verdict.eager_ms,
            Verdict.compile_ms,
        )
        .outerjoin(Verdict, Verdict.id == Rollout.verdict_id)
        .where(Rollout.batch_id.in_(wanted), _finished())
        .ext(distinct_on(Rollout.batch_id, Rollout.position))
        .order_by(Rollout.batch_id, Rollout.position, Rollout.attempt.desc())
    )
    records: dict[UUID, list[EpisodeRecord]] = {batch_id: [] for batch_id in wanted}
    for batch_id, problem, outcome, reward, candidate_ms, eager_ms, compile_ms in found:
        speedups = (_ratio(eager_ms, candidate_ms), _ratio(compile_ms, candidate_ms))
        records[batch_id].append(EpisodeRecord(problem, outcome == "correct", reward, *speedups))
    return records


def _finished() -> ColumnElement[bool]:
    return Rollout.error.is_(None) & Rollout.outcome.is_not(None) & (Rollout.outcome != INFRA_ERROR)


def _ratio(baseline_ms: float | None, candidate_ms: float | None) -> float | None:
    """Speed-up, where both times are known."""
    return baseline_ms / candidate_ms if baseline_ms and candidate_ms else None
