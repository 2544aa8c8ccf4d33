"""Which failures a task tries again by itself: faults of the infrastructure, never a person's mistake or an outcome."""

from typing import Any

from prefect import State
from prefect.client.schemas.objects import TaskRun

from cuda_agent.errors import ConfigError, CudaAgentError, ProblemError


def worth_retrying(_task: Any, _run: TaskRun, state: State[Any]) -> bool:
    """True where the task raised one of this project's errors that another attempt may not meet."""
    return isinstance(state.data, CudaAgentError) and not isinstance(state.data, ConfigError | ProblemError)
