"""An agent's own measuring script on the leased device: `python3 -m utils.run` in the workspace asks for it.

The script runs on a copy of the workspace, in a sandbox of its own, while nothing else of this project uses the device, and
only that sandbox sees a GPU; what it started ends with it. What it prints is all that comes back: numbers that the agent
made itself are advice to itself and never count for a reward.
"""

import asyncio
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from cuda_agent.judge.build import MANIFEST_VARIABLE, Manifest
from cuda_agent.sandbox.lease import Lease
from cuda_agent.sandbox.limits import Limits
from cuda_agent.sandbox.shell import Shell, ShellResult
from cuda_agent.sandbox.view import gpu_binds

SECONDS = 10.0  # of one script, start of the interpreter included
MOST_FILES_MB = 256  # of a workspace that is copied


async def run_alone(lease: Lease, manifest: Manifest, workspace: Path, command: Sequence[str]) -> ShellResult:
    """Run `python3 command...` in a copy of the workspace, alone on the device, for at most `SECONDS`.

    Raises:
        OSError: the workspace is too large, or cannot be copied.
        SandboxError: bubblewrap could not be started.
    """
    place = workspace.with_name("alone")
    cuda = manifest.backend == "cuda"
    limits = Limits(
        wall_seconds=SECONDS, memory_mb=0 if cuda else 8_000, processes=128, output_bytes=64_000, file_mb=256
    )  # CUDA reserves more addresses than any limit on them allows
    try:
        await asyncio.to_thread(_copy, workspace, place)
        async with Shell(
            place,
            limits=limits,
            environment={MANIFEST_VARIABLE: str(manifest.path)},
            readable=[manifest.path.parent],
            devices=[bind.source for bind in gpu_binds()] if cuda else (),
        ) as shell:
            await shell.run("true", SECONDS)  # starting it needs no lease
            async with lease.exclusive():
                return await shell.run(shlex.join(["python3", *command]), SECONDS)
    finally:
        await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)


def _copy(workspace: Path, place: Path) -> None:
    files = [path for path in workspace.rglob("*") if path.is_file() and not path.is_symlink()]
    size = sum(path.stat().st_size for path in files)
    if size > MOST_FILES_MB * 2**20:
        raise OSError(f"the workspace holds {size / 2**20:.0f} MB, and at most {MOST_FILES_MB} MB are copied; delete what is big")
    shutil.copytree(workspace, place, symlinks=True)
