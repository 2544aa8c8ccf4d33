"""Many episodes at once: their tools, builds and judgements overlap with generation.

An episode that fails hurts no other: its fault is handed to `on_result` in its place. Cancelling the batch cancels every
episode and returns only when their sandboxes and workspaces are gone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar
from uuid import UUID

from cuda_agent.errors import CudaAgentError, EngineError
from cuda_agent.store.queries import finished_positions, get_batch
from cuda_agent.store.session import Store

MIN_COMPLETE = 0.9  # share of a batch without infrastructure errors below which it is not used

Job = TypeVar("Job")
Result = TypeVar("Result")


async def run_batch(
    jobs: Iterable[Job],
    play: Callable[[Job], Awaitable[Result]],
    *,
    concurrency: int,
    on_result: Callable[[Job, Result | CudaAgentError], Awaitable[None]],
) -> None:
    """Play every job, at most `concurrency` at once, in order of their start.

    Args:
        jobs: what tells the episodes apart (a plan's position, a problem).
        play: plays one, such as `BatchPlayer.play`.
        concurrency: episodes under way at once.
        on_result: called once for each job as soon as it ends, with its result or its infrastructure error.

    Raises:
        Exception: whatever `on_result` raises, or a fault of the program in `play`; the other episodes are cancelled then.
    """
    waiting = iter(jobs)

    async def worker() -> None:
        for job in waiting:
            try:
                outcome: Result | CudaAgentError = await play(job)
            except CudaAgentError as error:
                outcome = error
            await on_result(job, outcome)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(worker())
    except BaseExceptionGroup as several:  # those after the first are of episodes that it cancelled
        raise several.exceptions[0] from None


def require_complete(store: Store, batch_id: UUID) -> None:
    """Check that a stored batch can be used.

    Raises:
        EngineError: too many episodes ended in infrastructure errors; what is finished is kept.
    """
    episodes, finished = get_batch(store, batch_id).episodes, len(finished_positions(store, batch_id))
    if finished < MIN_COMPLETE * episodes:
        raise EngineError(
            f"only {finished} of {episodes} episodes of batch {batch_id} ran without an infrastructure error; "
            "look at the failed attempts and start the stage again, which keeps the finished ones"
        )
