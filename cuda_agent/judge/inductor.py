"""Warm inductor in sandboxed children: whatever does not depend on the problem is done once, in the fork server.

`warm_server` compiles one harmless module: imports, the check of the vector instructions and the precompiled header (150 MB,
15-40 s once per machine, kept under `root_of(cache)`) are then inherited by every child, which must see that folder
read-only. A child keeps its compiled code in a folder of its own; `collect` and `restore` carry exactly one problem's code
from the child that vetted it to the one that times it, so no problem can touch another's. A bundle made by another torch,
compiler or CPU is ignored by inductor's own keys.
Imports torch inside functions only.
"""

import importlib
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

from cuda_agent.config import Backend
from cuda_agent.errors import SandboxError
from cuda_agent.judge import machine
from cuda_agent.sandbox.forkserver import ForkServer

ROOT_VARIABLE = "CUDA_AGENT_INDUCTOR"
CODE_FOLDER = "/tmp/inductor"  # the same in every child: generated code may name it
ROLES = ("cuda_agent.judge.candidate", "cuda_agent.judge.reference", "cuda_agent.judge.baseline")
PRELOAD = {
    "cpu": ("cuda_agent.judge.inductor:warm", *ROLES),
    "cuda": ("cuda_agent.judge.inductor:warm_for_gpu", *ROLES),
}
START_SECONDS = 300.0
SKIPPED = ("locks",)


def root_of(cache_dir: Path) -> Path:
    """Where a machine's cache keeps what inductor made."""
    return cache_dir / "inductor"


async def warm_server(cache_dir: Path, threads: int = 0, backend: Backend = "cpu") -> ForkServer:
    """Start a fork server for the judge's roles and for vetting (0 threads: all cores); close it after use.

    Raises:
        ConfigError: backend cuda without a GPU.
        SandboxError: it did not start.
    """
    threads = threads or len(os.sched_getaffinity(0))
    settings = environment(root_of(cache_dir)) | {"OMP_NUM_THREADS": str(threads)}
    if backend == "cuda":
        settings |= machine.visible(machine.gpu())
    server = ForkServer(PRELOAD[backend], settings)
    try:
        await server.start(START_SECONDS)
    except SandboxError:
        if backend == "cpu":
            raise
        server = ForkServer(ROLES, settings)  # a driver that starts all the same: every child imports inductor by itself
        await server.start(START_SECONDS)
    return server


def environment(root: Path) -> dict[str, str]:
    """What a fork server that preloads `warm` needs in its environment; creates `root`."""
    root.mkdir(parents=True, exist_ok=True)
    # One compiling thread: no pool of processes behind a single small module, and no thread in the fork server.
    settings = {ROOT_VARIABLE: str(root), "TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}
    # Whether there is a GPU is to be answered without starting its driver, which does not survive a fork.
    return settings | {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


def warm() -> None:
    """Compile one harmless module with a single thread (a fork keeps no threads)."""
    root = Path(os.environ[ROOT_VARIABLE])
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(root / "warm")
    import torch
    from torch._inductor import codecache

    codecache._HEADER_DIR = str(root / "headers")
    codecache._HEADER_LOCK_DIR = str(root / "headers" / "locks")
    _no_progress_monitor()
    torch.set_num_threads(1)
    with torch.no_grad():
        torch.compile(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh()))(torch.zeros(16, 16))
    torch._dynamo.reset()


def warm_for_gpu() -> None:
    """Import most of what compiling for a GPU needs; the rest would leave a thread, and tracing a module start the driver."""
    importlib.import_module("torch._inductor.config")


def _no_progress_monitor() -> None:
    """Torch's interpreter opens a tqdm bar now and then, whose monitor is a thread: a forking process must have only one."""
    try:
        from tqdm import tqdm  # type: ignore[import-untyped]
    except ImportError:
        return
    tqdm.monitor_interval = 0


def use_private_folder() -> None:
    """In a child: keep what is compiled from now on in a folder of its own."""
    os.makedirs(CODE_FOLDER, exist_ok=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = CODE_FOLDER


def collect() -> dict[str, bytes]:
    """In a child: remove and return the files compiled since the last call, by path relative to the folder.

    What inductor still knows of them is forgotten too: the next problem that needs the same kernel gets files of its own.
    """
    importlib.import_module("torch._inductor.utils").clear_caches()
    folder = Path(CODE_FOLDER)
    files = {}
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        name = path.relative_to(folder)
        if name.parts[0] not in SKIPPED:
            files[str(name)] = path.read_bytes()
        path.unlink()
    return files


def bundle_path(root: Path, code_sha256: str) -> Path:
    """Where the compiled code of a problem is kept."""
    return root / "problems" / code_sha256[:2] / f"{code_sha256}.zip"


def write_bundle(path: Path, files: Mapping[str, bytes]) -> None:
    """In the parent: keep a problem's compiled code; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in sorted(files.items()):
            archive.writestr(name, content)
    draft.replace(path)


def restore(path: Path) -> bool:
    """In a child: put a problem's compiled code where inductor looks for it; False without a readable bundle."""
    try:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(CODE_FOLDER)  # refuses absolute names and `..` by stripping them
    except (OSError, zipfile.BadZipFile):
        return False
    return True
