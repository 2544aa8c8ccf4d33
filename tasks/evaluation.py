"""Stage `evaluation`: the figures of a batch of held-out episodes, as a row."""

import asyncio
from uuid import UUID

from prefect import get_run_logger, task

from cuda_agent.report.reading import episode_records
from cuda_agent.report.statistics import EvaluationSummary
from cuda_agent.report.statistics import summarise as figures
from cuda_agent.store.queries import get_batch
from cuda_agent.store.session import Store
from cuda_agent.store.tables import Evaluation
from tasks.services import current


@task(name="summarise evaluation")
async def summarise(stage_run_id: UUID, batch_id: UUID, label: str) -> UUID:
    """Store the evaluation's figures; returns its id."""
    evaluation_id, summary = await asyncio.to_thread(_store, current().store, stage_run_id, batch_id, label)
    get_run_logger().info(
        "%s: pass rate %s, mean reward %s over %d episodes",
        label or batch_id,
        summary.pass_rate,
        summary.mean_reward,
        summary.episodes,
    )
    return evaluation_id


def _store(store: Store, stage_run_id: UUID, batch_id: UUID, label: str) -> tuple[UUID, EvaluationSummary]:
    batch = get_batch(store, batch_id)
    with store.session() as session:
        summary = figures(episode_records(session, [batch_id])[batch_id])
        row = Evaluation(
            stage_run_id=stage_run_id,
            batch_id=batch_id,
            policy_version_id=batch.policy_version_id,
            label=label,
            summary=summary.to_json(),
        )
        session.add(row)
        session.flush()
        return row.id, summary
