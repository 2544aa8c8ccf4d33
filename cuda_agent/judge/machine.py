"""What machine measures: part of every stage key and verdict in which times matter."""

import os
import platform
from functools import cache
from pathlib import Path

from cuda_agent.config import Backend
from cuda_agent.errors import ConfigError


@cache
def device_model(backend: Backend) -> str:
    """Model of the measuring device: of the processor and its usable cores for `cpu`.

    Raises:
        ConfigError: backend cuda, which this machine does not serve.
    """
    if backend == "cuda":
        raise ConfigError("backend cuda needs an NVIDIA GPU; use --backend cpu")
    return f"{_cpu_model()} x{len(os.sched_getaffinity(0))}"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
