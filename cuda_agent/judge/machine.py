"""What machine measures: part of every stage key and verdict in which times matter. Imports no torch."""

import os
import platform
import shutil
import subprocess
from functools import cache
from importlib import metadata
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from cuda_agent.config import Backend, JudgeConfig
from cuda_agent.errors import ConfigError
from cuda_agent.judge import nvml

JUDGE_VERSION = 10
NO_GPU = "backend cuda needs an NVIDIA GPU, and {}; use --backend cpu"


class Gpu(NamedTuple):
    """A GPU as nvidia-smi names it; `arch` as nvcc does."""

    name: str
    arch: str
    driver: str
    uuid: str


@cache
def device_model(backend: Backend) -> str:
    """Model of the measuring device: of the processor and its usable cores for `cpu`, of the first GPU for `cuda`.

    Raises:
        ConfigError: backend cuda on a machine without an NVIDIA GPU.
    """
    if backend == "cpu":
        return f"{_field(Path('/proc/cpuinfo'), 'model name') or platform.machine()} x{len(os.sched_getaffinity(0))}"
    return gpu().name


def gpu() -> Gpu:
    """The GPU that backend cuda measures on.

    Raises:
        ConfigError: there is none, or it does not answer.
    """
    return gpus()[0]


@cache
def gpus() -> tuple[Gpu, ...]:
    """Every GPU that this process may use, in its order; one at least.

    Raises:
        ConfigError: there is none, or it does not answer.
    """
    if shutil.which("nvidia-smi") is None:
        raise ConfigError(NO_GPU.format("nvidia-smi is not installed here"))
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [""] if told is None else list(takewhile(lambda name: name not in ("", "-1"), map(str.strip, told.split(","))))
    if not names:
        raise ConfigError(NO_GPU.format("CUDA_VISIBLE_DEVICES hides every one"))
    rows = [row for name in names for row in _query("name,compute_cap,driver_version,uuid", name)]
    if not rows:
        raise ConfigError(NO_GPU.format("nvidia-smi lists none"))
    return tuple(Gpu(name, _arch(capability), driver, uuid) for name, capability, driver, uuid in rows)


def visible(found: Gpu) -> dict[str, str]:
    """The environment in which a process that inherits none uses this GPU."""
    alone = "CUDA_VISIBLE_DEVICES" not in os.environ and len(gpus()) == 1
    return {} if alone else {"CUDA_VISIBLE_DEVICES": found.uuid}


def _arch(capability: str) -> str:
    number = capability.replace(".", "")
    return f"sm_{number}a" if int(number) >= 90 else f"sm_{number}"  # from 9.0 on, its own instructions need the letter


def _query(fields: str, chosen: str) -> list[list[str]]:
    """nvidia-smi's answer, a row per GPU (all of them where none is chosen); empty if it fails."""
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", *(["-i", chosen] if chosen else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = done.stdout.splitlines() if done.returncode == 0 else []
    return [[cell.strip() for cell in row.split(",")] for row in rows]


def _field(path: Path, name: str) -> str:
    for line in path.read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return ""


def environment(config: JudgeConfig, threads: int) -> dict[str, Any]:
    """What is recorded with each verdict and is the same for all of a pool."""
    facts: dict[str, Any] = {
        "backend": config.backend,
        "device": device_model(config.backend),
        "threads": threads,
        "torch": metadata.version("torch"),
        "python": platform.python_version(),
        "judge": JUDGE_VERSION,
        "milestone": config.milestone,
    }
    if config.backend == "cuda":
        found = gpu()
        facts |= {"driver": found.driver, "cuda": nvml.cuda_version(found.uuid), "gpu": found.uuid, "arch": found.arch}
        facts["tf32"] = config.tf32
    return facts
