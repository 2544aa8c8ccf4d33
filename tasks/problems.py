"""Stage `dataset`: vetted problems become rows as they come, and a retry goes on after the last one."""

import asyncio
from collections import Counter
from uuid import UUID

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from cuda_agent.problems.making import Order, Shared, make_set
from cuda_agent.problems.problem import VettedProblem
from cuda_agent.problems.stored import stored_problems
from tasks.artifacts import publish_card
from tasks.retrying import worth_retrying
from tasks.services import current

_SHOW_EVERY = 16  # candidates between two lines of progress


@task(name="generate problems", retries=1, retry_condition_fn=worth_retrying, cache_policy=NO_CACHE)
async def generate_problems(stage_run_id: UUID, order: Order) -> UUID:
    """Compose and vet until the set is full, and publish its card; returns the dataset's id.

    Raises:
        ProblemError: the operators and the time window do not give enough problems.
        SandboxError: candidates cannot be executed on this host.
    """
    services, logger = current(), get_run_logger()
    counts = Counter[str]()

    def show(problem: VettedProblem) -> None:
        counts[problem.rule or "accepted"] += 1
        if counts.total() % _SHOW_EVERY == 0:
            logger.info("%d candidates tried: %s", counts.total(), _told(counts))

    dataset_id = await make_set(
        services.store,
        stage_run_id,
        order,
        cache_dir=services.cache_dir,
        on_result=show,
        tell=logger.info,
        shared=Shared(await services.fork_server(order.judge.threads, order.judge.backend), services.lease),
    )
    problems = await asyncio.to_thread(stored_problems, services.store, dataset_id)
    logger.info("dataset %s: %s", dataset_id, _told(Counter(problem.rule or "accepted" for problem in problems)))
    await publish_card(services.store, dataset_id)
    return dataset_id


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())
