"""A campaign as one JSON object: what `cuda-agent report --json` prints and every table and curve is drawn from.

Contract: `stages`, `problems`, `rollouts`, `updates` and `evaluations` with exactly the documented keys; what this module
adds stands beside them under names of its own (intervals end in `_interval`). Numbers are finite or null, ids are strings.
All figures are recomputed from rows of single episodes, so a summary never disagrees with the store.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from cuda_agent.report import reading
from cuda_agent.report.statistics import EpisodeRecord, compare, summarise
from cuda_agent.store.tables import Campaign, RolloutBatch, StageRun, Update

if TYPE_CHECKING:
    from cuda_agent.store.session import Store

START = "start"  # the budget's name for services and imports
TRAINING_ORDER = ("base", "warmup", "rft", "ppo")

Json = dict[str, Any]


def campaign_summary(store: "Store", campaign_id: UUID | None = None) -> Json:
    """Everything the report shows about a campaign; None takes the one begun last.

    Raises:
        ConfigError: no campaign has this id.
        StoreError: the store is not reachable, or holds no campaign.
    """
    with store.session() as session:
        campaign = reading.find_campaign(session, campaign_id)
        runs = reading.stage_runs(session, campaign.id)
        stage_ids = [run.id for run in runs]
        batches = reading.batches(session, stage_ids)
        given = [batch for run in runs for batch in given_batches(run)]
        batch_ids = list(dict.fromkeys([*(batch.id for batch in batches), *given]))
        counts = reading.outcomes(session, batch_ids)
        own = {batch.id for batch in batches}
        records = reading.episode_records(session, own)
        rows = reading.evaluations(session, stage_ids)
        return {
            "campaign": campaign_facts(campaign),
            "stages": [stage_facts(run, campaign.id) for run in runs],
            "budget": budget(campaign, runs),
            "problems": problem_facts(reading.problem_counts(session, stage_ids, batch_ids)),
            "rollouts": rollout_facts([count for count in counts if count.batch_id in own]),
            "training_episodes": training_episodes(runs, batches, counts),
            "training_rewards": training_rewards(runs, batches, records),
            "updates": update_facts(reading.updates(session, stage_ids)),
            "evaluations": evaluation_facts(rows, records, {batch.id: batch.episodes for batch in batches}),
        }


def campaign_facts(campaign: Campaign) -> Json:
    """Name, state and wall-clock seconds so far of the campaign."""
    end = campaign.ended_at or datetime.now(UTC)
    return {
        "id": str(campaign.id),
        "name": campaign.name,
        "status": campaign.status,
        "flow_run": _id(campaign.flow_run_id),
        "started_at": campaign.created_at.isoformat(),
        "ended_at": campaign.ended_at.isoformat() if campaign.ended_at else None,
        "seconds": (end - campaign.created_at).total_seconds(),
    }


def stage_facts(run: StageRun, campaign_id: UUID) -> Json:
    """One stage run; `reused` says that an earlier campaign or a run by hand had made its result already."""
    return {
        "name": run.stage,
        "status": run.status,
        "seconds": run.seconds,
        "attempts": run.attempt,
        "label": run.label,
        "message": run.message,
        "reused": run.campaign_id != campaign_id,
        "stage_run": str(run.id),
        "flow_run": _id(run.flow_run_id),
        "ui_url": run.ui_url,
    }


def budget(campaign: Campaign, runs: Sequence[StageRun]) -> list[Json]:
    """Minutes of work against the plan of the campaign's config: the start, what is planned and no stage yet (null), stages."""
    planned = {_singular(name): (name, float(minutes)) for name, minutes in campaign.config.get("budget_minutes", {}).items()}
    actual: dict[str, float] = defaultdict(float, {START: campaign.start_seconds / 60})
    names: dict[str, str] = {}
    for run in runs:
        names.setdefault(_singular(run.stage), run.stage)
        actual[_singular(run.stage)] += run.seconds / 60
    return [
        {
            "name": planned[key][0] if key in planned else names[key],
            "planned_minutes": planned[key][1] if key in planned else None,
            "actual_minutes": actual.get(key),
        }
        for key in [*(key for key in planned if key not in names), *names]
    ]


def problem_facts(counts: Iterable[tuple[str | None, str | None, int]]) -> Json:
    """Accepted problems, and the rejected ones by the rule that refused them."""
    accepted: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    for split, rule, count in counts:
        if rule is None:
            accepted[split or "train"] += count
        else:
            rejected[rule] += count
    return {"accepted": accepted.total(), "rejected": dict(rejected.most_common()), "accepted_by_split": dict(accepted)}


def rollout_facts(counts: Iterable[reading.BatchOutcomes]) -> Json:
    """Attempts in all and by outcome, evaluation included; `total` is the sum of `by_outcome`."""
    by_outcome: Counter[str] = Counter()
    by_purpose: dict[str, Counter[str]] = defaultdict(Counter)
    by_engine: Counter[str] = Counter()
    for count in counts:
        by_outcome[count.outcome] += count.attempts
        by_purpose[count.purpose][count.outcome] += count.attempts
        by_engine[count.engine] += count.attempts
    return {
        "total": by_outcome.total(),
        "by_outcome": dict(by_outcome.most_common()),
        "by_purpose": {purpose: dict(found.most_common()) for purpose, found in sorted(by_purpose.items())},
        "by_engine": dict(by_engine.most_common()),
    }


def training_episodes(
    runs: Sequence[StageRun], batches: Sequence[RolloutBatch], counts: Sequence[reading.BatchOutcomes]
) -> dict[str, dict[str, int]]:
    """Episodes that each training stage drew on, by the engine that sampled them.

    A stage that knows which ones it kept says so in its outputs (`episodes_by_engine`); otherwise these are all finished
    training episodes of its own batches and of those that it was given.
    """
    finished: dict[UUID, Counter[str]] = defaultdict(Counter)
    for count in counts:
        if count.purpose == "train" and count.outcome != reading.INFRA_ERROR:
            finished[count.batch_id][count.engine] += count.attempts
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for run in runs:
        kept = (run.outputs or {}).get("episodes_by_engine")
        sampled = [batch.id for batch in batches if batch.stage_run_id == run.id]
        used = [kept] if isinstance(kept, dict) else [finished[batch_id] for batch_id in [*sampled, *given_batches(run)]]
        for engines in used:
            found[run.stage].update({engine: int(number) for engine, number in engines.items()})
    return {stage: dict(engines.most_common()) for stage, engines in found.items() if engines}


def given_batches(run: StageRun) -> list[UUID]:
    """The rollout batches that a stage run took as input."""
    return [UUID(str(batch_id)) for batch_id in run.inputs.get("batch_ids") or []]


def training_rewards(
    runs: Sequence[StageRun], batches: Sequence[RolloutBatch], records: Mapping[UUID, Sequence[EpisodeRecord]]
) -> list[Json]:
    """Mean reward of every training batch in the order of training, from its own episodes."""
    found = []
    for run in runs:
        for batch in batches:
            if batch.stage_run_id == run.id and batch.purpose == "train" and records[batch.id]:
                figures = summarise(records[batch.id])
                found.append(
                    {
                        "stage": run.stage,
                        "step": batch.step,
                        "engine": batch.engine,
                        "policy_version": _id(batch.policy_version_id),
                        "episodes": figures.episodes,
                        "mean_reward": figures.mean_reward,
                        "pass_rate": figures.pass_rate,
                    }
                )
    return found


def update_facts(updates: Sequence[Update]) -> list[Json]:
    """Optimiser steps with the versions that they made."""
    return [
        {
            "stage": update.stage,
            "step": update.step,
            "policy_version": _id(update.policy_version_id),
            "metrics": finite(update.metrics),
            "critic_version": _id(update.critic_version_id),
            "batch": _id(update.batch_id),
        }
        for update in updates
    ]


def evaluation_facts(
    rows: Sequence[reading.EvaluationRow], records: Mapping[UUID, Sequence[EpisodeRecord]], asked: Mapping[UUID, int]
) -> list[Json]:
    """Evaluations in training order, the base policy's first, each compared by problem with it and with the one before.

    `asked` has the episodes that each batch was to have: what is missing ended in infrastructure errors.
    """
    ordered = sorted(rows, key=_training_place)
    facts = []
    for place, row in enumerate(ordered):
        episodes = records[row.evaluation.batch_id]
        figures = summarise(episodes).to_json()
        base = records[ordered[0].evaluation.batch_id]
        previous = records[ordered[place - 1].evaluation.batch_id]
        facts.append(
            {
                "policy_version": _id(row.evaluation.policy_version_id),
                "stage": row.policy.stage if row.policy else row.evaluation.label,
                **figures,
                "step": row.policy.step if row.policy else None,
                "label": row.evaluation.label,
                "batch": str(row.evaluation.batch_id),
                "infra_errors": max(asked[row.evaluation.batch_id] - len(episodes), 0),
                "difference_to_base": compare(episodes, base).to_json() if place else None,
                "difference_to_previous": compare(episodes, previous).to_json() if place else None,
            }
        )
    return facts


def finite(value: Any) -> Any:
    """The same JSON value with every number that JSON cannot hold as null."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _training_place(row: reading.EvaluationRow) -> tuple[int, int]:
    """Where a policy stands in training; policies of other names and text engines come last, as they were run."""
    name = row.policy.stage if row.policy else row.evaluation.label
    known = row.policy is not None and name in TRAINING_ORDER
    return (TRAINING_ORDER.index(name) if known else len(TRAINING_ORDER), row.policy.step if row.policy else 0)


def _id(value: UUID | None) -> str | None:
    return str(value) if value else None


def _singular(name: str) -> str:
    return name.removesuffix("s")
