"""What the dashboard shows: markdown for stages, rollouts and the campaign. A failing artifact never fails the work."""

import asyncio
from uuid import UUID

from prefect import get_run_logger
from prefect.artifacts import acreate_markdown_artifact
from prefect.exceptions import PrefectException

from cuda_agent.problems.card import dataset_card
from cuda_agent.report.markdown import campaign_markdown, stage_markdown
from cuda_agent.report.rollout_page import rollout_markdown
from cuda_agent.store.session import Store


async def publish_stage(store: Store, stage_run_id: UUID) -> None:
    """The stage's result as an artifact of the current flow run."""
    await _publish(await asyncio.to_thread(stage_markdown, store, stage_run_id), f"stage-{stage_run_id}", "What this stage made")


async def publish_card(store: Store, dataset_id: UUID) -> None:
    """A problem set's card, with the picture in it, as an artifact of the current run."""
    await _publish(await asyncio.to_thread(dataset_card, store, dataset_id), f"dataset-{dataset_id}", "The problem set's card")


async def publish_rollout(store: Store, rollout_id: UUID) -> None:
    """A rollout's outcome, verdicts and transcript as an artifact of the current task run."""
    await _publish(
        await asyncio.to_thread(rollout_markdown, store, rollout_id), f"rollout-{rollout_id}", "Outcome and transcript"
    )


async def publish_campaign(store: Store, campaign_id: UUID) -> None:
    """The campaign's report as an artifact of the current flow run."""
    await _publish(await asyncio.to_thread(campaign_markdown, store, campaign_id), f"campaign-{campaign_id}", "Campaign report")


async def _publish(markdown: str, key: str, description: str) -> None:
    try:
        await acreate_markdown_artifact(markdown, key=key, description=description)
    except PrefectException as error:
        get_run_logger().warning("artifact %s was not stored: %s", key, error)
