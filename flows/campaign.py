"""The campaign: every stage in the paper's order, with an evaluation of the policy after each training stage.

dataset -> base policy -> single-turn PPO -> rollouts -> RFT and critic pretraining -> agentic PPO. Stages pass ids only,
and each is found again by its key, so a campaign that is started again goes on where it stopped.
"""

from uuid import UUID

from prefect import flow

from cuda_agent.config import CampaignConfig
from flows.base_policy import base_policy
from flows.critic import critic
from flows.dataset import dataset
from flows.evaluation import evaluation
from flows.naming import campaign_name
from flows.ppo import ppo, warmup
from flows.rft import rft
from flows.rollouts import rollouts
from tasks.campaigns import campaign_row, publish_report, seeded
from tasks.services import services


@flow(name="campaign", flow_run_name=campaign_name, persist_result=True)
async def campaign(config: CampaignConfig = CampaignConfig(), refresh: bool = False) -> dict[str, str]:
    """Run a whole campaign. Returns `campaign_id` and the final `policy_version_id`.

    Args:
        config: every stage's settings; see infra/campaigns/ for examples.
        refresh: make every stage anew even where the same result is stored.
    """
    config = seeded(config)
    async with services(), campaign_row(config) as campaign_id:
        policy = await _stages(config, campaign_id, refresh)
        await publish_report(campaign_id)
        return {"campaign_id": str(campaign_id), "policy_version_id": str(policy)}


async def _stages(config: CampaignConfig, campaign_id: UUID, refresh: bool) -> UUID:
    """The stages in order; returns the last policy version."""
    judge = config.judge

    async def evaluate(policy: UUID, label: str) -> None:
        await evaluation(problems, policy, label, config.evaluation, judge, campaign_id, refresh)

    problems = (await dataset(config.dataset, judge, campaign_id, refresh))["dataset_id"]
    base = (await base_policy(problems, config.base_policy, campaign_id, refresh))["policy_version_id"]
    await evaluate(base, "base")
    warm = (await warmup(problems, base, config.warmup, judge, campaign_id, refresh))["policy_version_id"]
    await evaluate(warm, "warmup")
    batches = [(await rollouts(problems, warm, config.rollouts, judge, campaign_id, refresh))["batch_id"]]
    if config.teacher_rollouts:
        batches.append((await rollouts(problems, None, config.teacher_rollouts, judge, campaign_id, refresh))["batch_id"])
    tuned = (await rft(warm, batches, config.rft, campaign_id, refresh))["policy_version_id"]
    await evaluate(tuned, "rft")
    value = (await critic(warm, batches, config.critic, campaign_id, refresh))["critic_version_id"]
    final = (await ppo(problems, tuned, value, config.ppo, judge, campaign_id, refresh))["policy_version_id"]
    await evaluate(final, "ppo")
    return final
