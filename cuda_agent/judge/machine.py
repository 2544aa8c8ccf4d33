"""What machine measures: part of every stage key and verdict in which times matter. Reads files only, imports no torch."""

import os
import platform
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from cuda_agent.config import Backend, JudgeConfig
from cuda_agent.errors import ConfigError

GPUS = Path("/proc/driver/nvidia/gpus")


@cache
def device_model(backend: Backend) -> str:
    """Model of the measuring device: of the processor and its usable cores for `cpu`, of the first GPU for `cuda`.

    Raises:
        ConfigError: backend cuda on a machine without an NVIDIA GPU.
    """
    if backend == "cpu":
        return f"{_field(Path('/proc/cpuinfo'), 'model name') or platform.machine()} x{len(os.sched_getaffinity(0))}"
    for path in sorted(GPUS.glob("*/information")):
        return _field(path, "Model")
    raise ConfigError("backend cuda needs an NVIDIA GPU; use --backend cpu")


def _field(path: Path, name: str) -> str:
    for line in path.read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return ""


def environment(config: JudgeConfig, threads: int) -> dict[str, Any]:
    """What is recorded with each verdict and is the same for all of a pool."""
    return {
        "backend": config.backend,
        "device": device_model(config.backend),
        "threads": threads,
        "torch": metadata.version("torch"),
        "python": platform.python_version(),
        "milestone": config.milestone,
    }
