"""Stage `critic`: pretrain a critic on all trajectories, failures included, before it guides PPO."""

from uuid import UUID

from prefect import flow

from cuda_agent.config import CriticConfig
from cuda_agent.store.stages import Ids
from flows.naming import run_name
from tasks.services import services
from tasks.stages import Outputs, stage
from tasks.training import train_critic

VERSION = 1


@flow(name="critic", flow_run_name=run_name("critic"), persist_result=True)
async def critic(
    policy_version_id: UUID,
    batch_ids: list[UUID],
    config: CriticConfig = CriticConfig(),
    campaign_id: UUID | None = None,
    refresh: bool = False,
) -> Outputs:
    """Pretrain a critic. Returns `critic_version_id`.

    Args:
        policy_version_id: the actor whose weights the critic starts from, with a new zero head.
        batch_ids: rollout batches of token engines to learn the value of.
        config: GAE and optimiser.
        campaign_id: the campaign this run belongs to, if any.
        refresh: train a new generation even if the same result exists.
    """
    inputs: Ids = {"policy_version_id": policy_version_id, "batch_ids": sorted(batch_ids)}
    async with services(), stage("critic", VERSION, config, inputs, None, campaign_id, refresh=refresh) as run:
        if not run.finished:
            run.finish({"critic_version_id": await train_critic(run.id, policy_version_id, batch_ids, config)})
        return run.outputs
