"""Every error this project raises on purpose, one leaf for each boundary that can be crossed.

A bad rollout is data (a verdict, an outcome) and never one of these. What is raised here is either a fault of the
infrastructure, which a task retries, or bad input, which a person mends: the message is one sentence that names the
thing, the reason and the mend.
"""


class CudaAgentError(Exception):
    """Base of all errors of this project; `exit_status` is what the command line ends with."""

    exit_status = 3


class ConfigError(CudaAgentError):
    """A setting, argument or file that a person gave is not usable."""

    exit_status = 2


class StoreError(CudaAgentError):
    """The database or the blob store could not be reached or does not hold what was asked for."""


class SandboxError(CudaAgentError):
    """The host could not start or keep a sandbox; never used for what happens to code inside one."""


class BuildEnvironmentError(CudaAgentError):
    """The compiler or its environment is missing or broken; a submission that fails to compile is a verdict instead."""


class DeviceError(CudaAgentError):
    """A measuring device is absent, unhealthy or could not be leased in time."""


class JudgeError(CudaAgentError):
    """The judge itself failed; the verdict is `infra_error` and trains nothing."""


class EngineError(CudaAgentError):
    """A model engine failed to start, to load a policy or to answer."""


class ProblemError(CudaAgentError):
    """A problem text, a set of them, or the settings that one is made by break a rule."""

    exit_status = 2


class LearningError(CudaAgentError):
    """A training process failed or its inputs are unusable."""


class ServiceError(CudaAgentError):
    """An embedded or remote service (Postgres, Prefect server, worker) did not start or answer."""


def transient(error: object) -> bool:
    """Whether this is a fault of the infrastructure, which another attempt may not meet; a person's mistake is none."""
    return isinstance(error, CudaAgentError) and not isinstance(error, ConfigError | ProblemError)
