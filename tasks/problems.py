"""Stage `dataset`: vetted problems become rows as they come, and a retry goes on after the last one."""

import asyncio
import platform
from collections import Counter
from uuid import UUID

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from sqlalchemy import select

from cuda_agent.config import DatasetConfig, JudgeConfig
from cuda_agent.problems.generate import generate
from cuda_agent.problems.problem import VettedProblem
from cuda_agent.store.datasets import add_problem, close_dataset, open_dataset
from cuda_agent.store.session import Store
from cuda_agent.store.tables import Problem
from tasks.retrying import worth_retrying
from tasks.services import current

_SHOW_EVERY = 16  # candidates between two lines of progress


@task(name="generate problems", retries=1, retry_condition_fn=worth_retrying, cache_policy=NO_CACHE)
async def generate_problems(stage_run_id: UUID, config: DatasetConfig, judge: JudgeConfig) -> UUID:
    """Compose and vet until the set is full; returns the dataset's id.

    Raises:
        ProblemError: the operators and the time window do not give enough problems.
        SandboxError: candidates cannot be executed on this host.
    """
    services, logger = current(), get_run_logger()
    provenance = {"composer": "sampler", "seed": config.science.seed, "machine": platform.machine()}
    name = f"composed-{config.science.seed}"
    dataset_id = await asyncio.to_thread(open_dataset, services.store, name, provenance, stage_run_id)
    done = await asyncio.to_thread(_stored, services.store, dataset_id)
    counts = Counter(problem.rule or "accepted" for problem in done)

    def keep(problem: VettedProblem) -> None:
        add_problem(services.store, dataset_id, problem)
        counts[problem.rule or "accepted"] += 1
        if counts.total() % _SHOW_EVERY == 0:
            logger.info("%d of %d accepted, %d candidates tried", counts["accepted"], config.science.count, counts.total())

    problems = await generate(
        config.science,
        config.execution,
        cache_dir=services.cache_dir,
        on_result=keep,
        done=done,
        lease=services.lease,
        threads=judge.threads,
        server=await services.fork_server(judge.threads),
    )
    splits = {problem.position: problem.split for problem in problems if problem.accepted}
    await asyncio.to_thread(close_dataset, services.store, dataset_id, splits)
    logger.info("dataset %s: %s", dataset_id, ", ".join(f"{count} {name}" for name, count in counts.most_common()))
    return dataset_id


def _stored(store: Store, dataset_id: UUID) -> list[VettedProblem]:
    with store.session() as session:
        rows = session.scalars(select(Problem).where(Problem.dataset_id == dataset_id).order_by(Problem.position)).all()
    return [
        VettedProblem(
            position=row.position,
            ops=tuple(row.ops),
            data_source=row.data_source,
            code=row.code,
            code_sha256=row.code_sha256,
            rule=row.rule,
            reason=row.reason,
            eager_ms=row.eager_ms,
            compile_ms=row.compile_ms,
            facts=row.facts,
        )
        for row in rows
    ]
