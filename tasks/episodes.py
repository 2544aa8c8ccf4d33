"""Open batches by id: rollout tasks are given ids only, and find here what their shard opened for them."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from prefect.runtime import flow_run, task_run

from cuda_agent.agent.player import BatchPlayer, Origin
from cuda_agent.errors import ConfigError

_open: dict[UUID, BatchPlayer] = {}


@contextmanager
def registered(player: BatchPlayer) -> Iterator[None]:
    """Let rollout tasks find this batch."""
    _open[player.batch.id] = player
    try:
        yield
    finally:
        del _open[player.batch.id]


def player_of(batch_id: UUID) -> BatchPlayer:
    """The registered player of a batch.

    Raises:
        ConfigError: a rollout task runs outside its shard.
    """
    if batch_id not in _open:
        raise ConfigError(f"batch {batch_id} is not open in this process; run the stage or the shard, not the task alone")
    return _open[batch_id]


def origin() -> Origin:
    """The Prefect runs of the calling task."""
    return Origin(_id(flow_run.id), _id(task_run.id))


def _id(text: str | None) -> UUID | None:
    return UUID(text) if text else None
