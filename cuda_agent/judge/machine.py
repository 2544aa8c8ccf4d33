"""The measuring device and the settings that stand beside every time; reads files only, imports no torch."""

import platform
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from cuda_agent.config import Backend, JudgeConfig


@lru_cache
def device_model(backend: Backend) -> str:
    """Name of the device that times are taken on: the CPU's model, or the first NVIDIA GPU's (empty if there is none)."""
    if backend == "cuda":
        for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
            return _field(path, "Model")
        return ""
    return _field(Path("/proc/cpuinfo"), "model name") or platform.machine()


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
