"""Stages `warmup` (single turn) and `ppo` (agentic): steps of rollouts and an update, one row and one task run each."""

from uuid import UUID

from prefect import flow

from cuda_agent.config import JudgeConfig, PpoConfig
from flows.naming import run_name
from flows.rollouts import run_batch
from tasks.rollouts import open_batch
from tasks.services import services
from tasks.stages import Outputs, StageRun, stage
from tasks.training import PpoSession, ppo_session, update

VERSION = 1


@flow(name="warmup", flow_run_name=run_name("warmup"), persist_result=True)
async def warmup(
    dataset_id: UUID,
    policy_version_id: UUID,
    config: PpoConfig = PpoConfig(),
    judge: JudgeConfig = JudgeConfig(),
    campaign_id: UUID | None = None,
    refresh: bool = False,
) -> Outputs:
    """Single-turn PPO from the base policy. Returns `policy_version_id` and `critic_version_id`.

    Args:
        dataset_id: where problems are drawn from.
        policy_version_id: the policy to train; it is the critic's origin too.
        config: PPO and its rollouts.
        judge: how submissions are judged.
        campaign_id: the campaign this run belongs to, if any.
        refresh: train a new generation even if the same result exists.
    """
    inputs = {"dataset_id": dataset_id, "policy_version_id": policy_version_id}
    async with services(), stage("warmup", VERSION, config, inputs, judge, campaign_id, refresh=refresh) as run:
        return await _train(run, config, judge, dataset_id, policy_version_id, None)


@flow(name="ppo", flow_run_name=run_name("ppo"), persist_result=True)
async def ppo(
    dataset_id: UUID,
    policy_version_id: UUID,
    critic_version_id: UUID | None = None,
    config: PpoConfig = PpoConfig(),
    judge: JudgeConfig = JudgeConfig(),
    campaign_id: UUID | None = None,
    refresh: bool = False,
) -> Outputs:
    """Agentic PPO. Returns `policy_version_id` and `critic_version_id` after the last step.

    Args:
        dataset_id: where problems are drawn from.
        policy_version_id: the policy to train, usually RFT's.
        critic_version_id: a pretrained critic; empty starts one from the policy.
        config: PPO and its rollouts.
        judge: how submissions are judged.
        campaign_id: the campaign this run belongs to, if any.
        refresh: train a new generation even if the same result exists.
    """
    inputs = {"dataset_id": dataset_id, "policy_version_id": policy_version_id, "critic_version_id": critic_version_id}
    async with services(), stage("ppo", VERSION, config, inputs, judge, campaign_id, refresh=refresh) as run:
        return await _train(run, config, judge, dataset_id, policy_version_id, critic_version_id)


async def _train(
    run: StageRun, config: PpoConfig, judge: JudgeConfig, dataset_id: UUID, policy_id: UUID, critic_id: UUID | None
) -> Outputs:
    """Run the steps that are still missing."""
    if run.finished:
        return run.outputs
    async with ppo_session(run, config, policy_id, critic_id) as session:
        while session.step < config.science.steps:
            await _step(session, config, judge, dataset_id)
        run.finish(session.versions)
    return run.outputs


async def _step(session: PpoSession, config: PpoConfig, judge: JudgeConfig, dataset_id: UUID) -> None:
    """Sample with the current policy, then update on what was sampled."""
    batch_id = await open_batch(
        session.run.id, session.step, dataset_id, session.policy_version_id, config.science.rollouts, "train"
    )
    await run_batch(batch_id, judge, config.execution.rollouts)
    await update(session.run.id, session.step, batch_id)
