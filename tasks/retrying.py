"""Which failures a task tries again by itself: faults of the infrastructure, never a person's mistake or an outcome."""

from typing import Any

from prefect import State
from prefect.client.schemas.objects import TaskRun

from cuda_agent.errors import transient


def worth_retrying(_task: Any, _run: TaskRun, state: State[Any]) -> bool:
    """True where the task raised an error that another attempt may not meet."""
    return transient(state.data)
