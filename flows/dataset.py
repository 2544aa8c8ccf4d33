"""Stage `dataset`: compose problems, vet each by execution, store accepted and rejected ones with reasons."""

from uuid import UUID

from prefect import flow

from cuda_agent.config import DatasetConfig, JudgeConfig
from flows.naming import run_name
from tasks.problems import generate_problems
from tasks.services import services
from tasks.stages import Outputs, stage

VERSION = 1


@flow(name="dataset", flow_run_name=run_name("dataset"), persist_result=True)
async def dataset(
    config: DatasetConfig = DatasetConfig(),
    judge: JudgeConfig = JudgeConfig(),
    campaign_id: UUID | None = None,
    refresh: bool = False,
) -> Outputs:
    """Make a problem set. Returns `dataset_id`.

    Args:
        config: what the set is made of and how.
        judge: backend and threads: times are measured as the judge measures them.
        campaign_id: the campaign this run belongs to, if any.
        refresh: make a new generation even if the same set exists.
    """
    async with services(), stage("dataset", VERSION, config, {}, judge, campaign_id, refresh=refresh) as run:
        if not run.finished:
            run.finish({"dataset_id": await generate_problems(run.id, config, judge)})
        return run.outputs
