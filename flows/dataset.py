"""Stage `dataset`: compose problems, vet each by execution, store accepted and rejected ones with reasons."""

from pathlib import Path
from uuid import UUID

from prefect import flow

from cuda_agent.config import DatasetConfig, JudgeConfig
from cuda_agent.engines.openai import Endpoint
from cuda_agent.problems.making import VERSION, Order
from cuda_agent.problems.sources import evaluation_texts
from flows.naming import run_name
from tasks.problems import generate_problems
from tasks.services import services
from tasks.stages import Outputs, stage


@flow(name="dataset", flow_run_name=run_name("dataset"), persist_result=True)
async def dataset(
    config: DatasetConfig = DatasetConfig(),
    judge: JudgeConfig = JudgeConfig(),
    campaign_id: UUID | None = None,
    refresh: bool = False,
    kernelbench: Path | None = None,
    evaluation: tuple[Path, ...] = (),
) -> Outputs:
    """Make a problem set. Returns `dataset_id`.

    Args:
        config: what the set is made of and how.
        judge: backend and threads: times are measured as the judge measures them.
        campaign_id: the campaign this run belongs to, if any.
        refresh: make a new generation even if the same set exists.
        kernelbench: folder of a checkout on the worker; no accepted problem may resemble one of its levels 1 to 3.
        evaluation: parquet files on the worker that no accepted problem may resemble.
    """
    texts = evaluation_texts(kernelbench, (), evaluation)
    endpoint = Endpoint.of() if config.science.composer == "llm" else None
    order = Order(config.science, config.execution, judge, texts, endpoint)
    async with services(), stage("dataset", VERSION, config, order.inputs(), judge, campaign_id, refresh=refresh) as run:
        if not run.finished:
            run.finish({"dataset_id": await generate_problems(run.id, order)})
        return run.outputs
