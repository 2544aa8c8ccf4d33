"""The campaign's own row and its report."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import get_run_logger
from prefect.runtime import flow_run

from cuda_agent.config import CampaignConfig
from cuda_agent.store.campaigns import begin_campaign, end_campaign
from tasks.artifacts import publish_campaign
from tasks.services import current


def seeded(config: CampaignConfig) -> CampaignConfig:
    """The config with the campaign's seed added to every `seed` inside its stages."""
    data = config.model_dump(exclude={"seed"})
    return CampaignConfig.model_validate({**_add_seed(data, config.seed), "seed": config.seed})


def _add_seed(value: Any, seed: int) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: entry + seed if key == "seed" else _add_seed(entry, seed) for key, entry in value.items()}


@asynccontextmanager
async def campaign_row(config: CampaignConfig) -> AsyncIterator[UUID]:
    """Begin the campaign's row, or take it up again on a retry; record how it ended."""
    store = current().store
    run_id = UUID(flow_run.id) if flow_run.id else None
    campaign_id = await asyncio.to_thread(begin_campaign, store, config, run_id, _process_seconds())
    try:
        yield campaign_id
    except BaseException:
        await asyncio.shield(asyncio.to_thread(end_campaign, store, campaign_id, "failed"))
        raise
    await asyncio.to_thread(end_campaign, store, campaign_id, "completed")


def _process_seconds() -> float:
    """Seconds since this process began (proc(5): `starttime` in clock ticks after boot, `uptime` in seconds)."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return float(Path("/proc/uptime").read_text().split()[0]) - started


async def publish_report(campaign_id: UUID) -> None:
    """The report as an artifact, and where to read it."""
    await publish_campaign(current().store, campaign_id)
    get_run_logger().info("campaign %s is complete; read it with: cuda-agent report", campaign_id)
