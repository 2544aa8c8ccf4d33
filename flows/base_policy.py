"""Stage `base_policy`: the policy that training starts from, made on the spot or taken from a checkpoint."""

from uuid import UUID

from prefect import flow

from cuda_agent.config import BasePolicyConfig
from flows.naming import run_name
from tasks.base_policy import adopt_checkpoint, pretrain_small_model
from tasks.services import services
from tasks.stages import Outputs, stage

VERSION = 1


@flow(name="base_policy", flow_run_name=run_name("base_policy"), persist_result=True)
async def base_policy(
    dataset_id: UUID, config: BasePolicyConfig = BasePolicyConfig(), campaign_id: UUID | None = None, refresh: bool = False
) -> Outputs:
    """Make the base policy. Returns `policy_version_id`.

    Args:
        dataset_id: its held-out operator sequences never appear in the pretraining texts.
        config: a checkpoint's name, or the size and recipe of the small model.
        campaign_id: the campaign this run belongs to, if any.
        refresh: make a new generation even if the same policy exists.
    """
    async with (
        services(),
        stage("base_policy", VERSION, config, {"dataset_id": dataset_id}, None, campaign_id, refresh=refresh) as run,
    ):
        if not run.finished:
            make = adopt_checkpoint if config.science.checkpoint else pretrain_small_model
            run.finish({"policy_version_id": await make(run.id, dataset_id, config)})
        return run.outputs
