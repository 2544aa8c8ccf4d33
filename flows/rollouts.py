"""Stage `rollouts`: a batch of episodes of one policy version; a shard of at most 128 is a flow run of its own."""

import asyncio
from uuid import UUID

from prefect import flow

from cuda_agent.agent.rollouts import VERSION, rollout_inputs
from cuda_agent.config import JudgeConfig, RolloutConfig, RolloutExecution
from flows.naming import run_name
from tasks.rollouts import deploy_shard, open_batch, require_complete, run_shard, shard_ranges
from tasks.services import services
from tasks.stages import Outputs, stage


@flow(name="rollouts", flow_run_name=run_name("rollouts"), persist_result=True)
async def rollouts(
    dataset_id: UUID,
    policy_version_id: UUID | None = None,
    config: RolloutConfig = RolloutConfig(),
    judge: JudgeConfig = JudgeConfig(),
    campaign_id: UUID | None = None,
    refresh: bool = False,
) -> Outputs:
    """Sample a batch of episodes. Returns `batch_id`.

    Args:
        dataset_id: where problems are drawn from.
        policy_version_id: the policy to sample; empty for the teacher and other text engines.
        config: how many episodes, by which engine, and their bounds.
        judge: how submissions are judged.
        campaign_id: the campaign this run belongs to, if any.
        refresh: sample a new generation even if the same batch exists.
    """
    inputs = rollout_inputs(dataset_id, policy_version_id, config.science)
    async with services(), stage("rollouts", VERSION, config, inputs, judge, campaign_id, refresh=refresh) as run:
        if not run.finished:
            batch_id = await open_batch(run.id, 0, dataset_id, policy_version_id, config.science, "train")
            await run_batch(batch_id, judge, config.execution)
            run.finish({"batch_id": batch_id})
        return run.outputs


@flow(name="rollout_shard", flow_run_name="shard {first}-{last}", persist_result=True)
async def rollout_shard(batch_id: UUID, first: int, last: int, judge: JudgeConfig, execution: RolloutExecution) -> dict[str, int]:
    """Run the episodes first..last (inclusive) of a batch that exists. Returns counts by outcome.

    Args:
        batch_id: the batch, whose row holds engine, policy and plan.
        first: first position.
        last: last position, inclusive.
        judge: how submissions are judged.
        execution: concurrency and attempts.
    """
    async with services():
        return await run_shard(batch_id, range(first, last + 1), judge, execution)


async def run_batch(batch_id: UUID, judge: JudgeConfig, execution: RolloutExecution) -> None:
    """Run a whole batch: in this flow when it is one shard, else each shard as a flow run, here or in a work pool.

    Raises:
        EngineError: too many episodes ended in infrastructure errors.
    """
    shards = await shard_ranges(batch_id, execution)
    if execution.work_pool is not None:
        await asyncio.gather(*(deploy_shard(batch_id, shard, judge, execution) for shard in shards))
    elif len(shards) == 1:
        await run_shard(batch_id, shards[0], judge, execution)
    else:
        for shard in shards:
            await rollout_shard(batch_id, shard[0], shard[-1], judge, execution)
    await require_complete(batch_id)
