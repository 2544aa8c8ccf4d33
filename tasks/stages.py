"""The frame of every stage: claim its key, show it on the dashboard, record how it ended.

A stage whose key is complete returns its stored outputs at once; one that crashed continues from its rows; a second
start of a running key waits for the first. Outputs are ids by name.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol
from uuid import UUID

from prefect import get_run_logger
from prefect.runtime import flow_run
from pydantic import BaseModel

from cuda_agent.config import JudgeConfig
from cuda_agent.judge.machine import device_model
from cuda_agent.store.stages import Ids, StageClaim, StageRequest, claim_stage
from tasks.artifacts import publish_stage
from tasks.services import current

Outputs = dict[str, UUID]


class StageConfig(Protocol):
    """What every stage's config has."""

    @property
    def science(self) -> BaseModel:
        """What changes results."""
        ...

    @property
    def execution(self) -> BaseModel:
        """Workers, limits and paths."""
        ...


class StageRun:
    """A claimed stage run as flows see it."""

    def __init__(self, name: str, claim: StageClaim) -> None:
        self.name = name
        self._claim = claim
        self.id: UUID = claim.row_id

    @property
    def finished(self) -> bool:
        """Whether outputs are stored already."""
        return self._claim.finished is not None

    @property
    def outputs(self) -> Outputs:
        """The stored outputs; only after `finished`."""
        return {name: UUID(value) for name, value in (self._claim.finished or {}).items()}

    def finish(self, outputs: Mapping[str, UUID]) -> None:
        """Store the outputs: the stage is complete."""
        self._claim.finish(outputs)


@asynccontextmanager
async def stage(
    name: str,
    version: int,
    config: StageConfig,
    inputs: Ids,
    judge: JudgeConfig | None,
    campaign_id: UUID | None,
    *,
    label: str = "",
    refresh: bool = False,
) -> AsyncIterator[StageRun]:
    """Claim the stage, yield it, publish what came of it.

    Args:
        name: the stage.
        version: the integer in the stage's module, raised when its code changes results.
        config: its settings; only `science` enters the key.
        inputs: ids by role.
        judge: given where times matter: its settings and the device then enter the key.
        campaign_id: the campaign to list the stage under.
        label: tells apart the runs of one stage in a campaign.
        refresh: make a new generation even if the key is complete.

    Raises:
        StoreError: the store cannot be used, or the claim was lost.
    """
    store, logger = current().store, get_run_logger()
    science = {"stage": config.science, "judge": judge} if judge else config.science
    request = StageRequest(
        name,
        version,
        inputs,
        science,
        config.execution,
        judge.backend if judge else None,
        device_model(judge.backend) if judge else None,
        label,
        refresh,
        campaign_id,
        UUID(flow_run.id) if flow_run.id else None,
        flow_run.ui_url,
    )
    claim = await asyncio.to_thread(claim_stage, store, request, on_wait=logger.info)
    with claim:
        run = StageRun(name, claim)
        if run.finished:
            logger.info("stage %s: the same work is stored already (stage run %s); returning it", name, run.id)
        yield run
        await publish_stage(store, run.id)
