"""Many episodes at once: their tools, builds and judgements overlap with generation.

An episode that fails hurts no other: its fault is handed to `on_result` in its place. Cancelling the batch cancels every
episode and returns only when their sandboxes and workspaces are gone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from cuda_agent.agent.episode import EpisodeResult
from cuda_agent.errors import CudaAgentError

Job = TypeVar("Job")


async def run_batch(
    jobs: Iterable[Job],
    play: Callable[[Job], Awaitable[EpisodeResult]],
    *,
    concurrency: int,
    on_result: Callable[[Job, EpisodeResult | CudaAgentError], Awaitable[None]],
) -> None:
    """Play every job, at most `concurrency` at once, in order of their start.

    Args:
        jobs: what tells the episodes apart (a plan's position, a problem).
        play: plays one, usually `run_episode` with everything but the job filled in.
        concurrency: episodes under way at once.
        on_result: called once for each job as soon as it ends, with its result or its infrastructure error.

    Raises:
        Exception: whatever `on_result` raises, or a fault of the program in `play`; the other episodes are cancelled then.
    """
    waiting = iter(jobs)

    async def worker() -> None:
        for job in waiting:
            try:
                outcome: EpisodeResult | CudaAgentError = await play(job)
            except CudaAgentError as error:
                outcome = error
            await on_result(job, outcome)

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(worker())
