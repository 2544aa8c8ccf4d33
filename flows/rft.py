"""Stage `rft`: rejection fine-tuning of the actor on the trajectories that the filter keeps."""

from uuid import UUID

from prefect import flow

from cuda_agent.config import RftConfig
from cuda_agent.store.stages import Ids
from flows.naming import run_name
from tasks.services import services
from tasks.stages import Outputs, stage
from tasks.training import train_rft

VERSION = 1


@flow(name="rft", flow_run_name=run_name("rft"), persist_result=True)
async def rft(
    policy_version_id: UUID,
    batch_ids: list[UUID],
    config: RftConfig = RftConfig(),
    campaign_id: UUID | None = None,
    refresh: bool = False,
) -> Outputs:
    """Fine-tune a policy on its own good trajectories. Returns `policy_version_id` of the result.

    Args:
        policy_version_id: the policy to train.
        batch_ids: rollout batches to filter.
        config: filter and optimiser.
        campaign_id: the campaign this run belongs to, if any.
        refresh: train a new generation even if the same result exists.
    """
    inputs: Ids = {"policy_version_id": policy_version_id, "batch_ids": sorted(batch_ids)}
    async with services(), stage("rft", VERSION, config, inputs, None, campaign_id, refresh=refresh) as run:
        if not run.finished:
            run.finish({"policy_version_id": await train_rft(run.id, policy_version_id, batch_ids, config)})
        return run.outputs
