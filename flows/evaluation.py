"""Stage `evaluation`: a policy on the held-out problems, the same problems and seeds for every policy."""

from uuid import UUID

from prefect import flow

from cuda_agent.config import EvaluationConfig, JudgeConfig
from flows.naming import run_name
from flows.rollouts import run_batch
from tasks.evaluation import summarise
from tasks.rollouts import open_evaluation
from tasks.services import services
from tasks.stages import Outputs, stage

VERSION = 1


@flow(name="evaluation", flow_run_name=run_name("evaluation"), persist_result=True)
async def evaluation(
    dataset_id: UUID,
    policy_version_id: UUID | None = None,
    label: str = "",
    config: EvaluationConfig = EvaluationConfig(),
    judge: JudgeConfig = JudgeConfig(),
    campaign_id: UUID | None = None,
    refresh: bool = False,
) -> Outputs:
    """Evaluate a policy. Returns `evaluation_id` and `batch_id`.

    Args:
        dataset_id: its held-out problems are the test.
        policy_version_id: the policy; empty for the teacher and other text engines.
        label: what the report calls this policy.
        config: engine, samples per problem and decoding.
        judge: how submissions are judged.
        campaign_id: the campaign this run belongs to, if any.
        refresh: evaluate again even if the same evaluation exists.
    """
    inputs = {"dataset_id": dataset_id, "policy_version_id": policy_version_id}
    async with services(), stage("evaluation", VERSION, config, inputs, judge, campaign_id, label=label, refresh=refresh) as run:
        if not run.finished:
            batch_id = await open_evaluation(run.id, dataset_id, policy_version_id, config.science)
            await run_batch(batch_id, judge, config.execution)
            run.finish({"evaluation_id": await summarise(run.id, batch_id, label), "batch_id": batch_id})
        return run.outputs
