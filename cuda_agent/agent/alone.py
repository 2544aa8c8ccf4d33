"""An agent's own measuring script on the leased device: `python3 -m utils.run` in the workspace asks for it.

The script runs on a copy of the workspace, in a sandbox of its own, while nothing else of this project uses the device, and
only that sandbox sees a GPU; what it started ends with it. The copy is made inside, by the sandbox's user and into its memory,
so nothing that the agent put there (links, special files, sizes) reaches further than its own commands do. What the script
prints is all that comes back: numbers that an agent made itself are advice to itself and never count for a reward.
"""

import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cuda_agent.judge.build import MANIFEST_VARIABLE, Manifest
from cuda_agent.sandbox.lease import Lease
from cuda_agent.sandbox.limits import Limits
from cuda_agent.sandbox.shell import Shell, ShellResult
from cuda_agent.sandbox.view import gpu_binds

SECONDS = 10.0  # of one script, start of the interpreter included


async def run_alone(lease: Lease, manifest: Manifest, workspace: Path, command: Sequence[str]) -> ShellResult:
    """Run `python3 command...` in a copy of the workspace, alone on the device, for at most `SECONDS`.

    Returns:
        What it printed; or what copying the workspace printed, where that failed.

    Raises:
        SandboxError: bubblewrap could not be started.
    """
    cuda = manifest.backend == "cuda"
    memory_mb = 0 if cuda else 8_000  # CUDA reserves more addresses than a limit on them could allow
    limits = Limits(wall_seconds=SECONDS, memory_mb=memory_mb, processes=128, output_bytes=64_000, file_mb=256)
    with tempfile.TemporaryDirectory(prefix="alone-") as folder:
        empty = Path(folder) / "empty"
        empty.mkdir()
        empty.parent.chmod(0o755)  # the sandbox's own user passes through
        async with Shell(
            empty,
            limits=limits,
            environment={MANIFEST_VARIABLE: str(manifest.path)},
            readable=[manifest.path.parent, workspace],
            devices=[bind.source for bind in gpu_binds()] if cuda else (),
        ) as shell:
            source = shlex.quote(f"{workspace}/.")
            copied = await shell.run(f"mkdir /tmp/copy && cp -r {source} /tmp/copy && cd /tmp/copy", SECONDS)
            if copied.exit_code != 0:
                return copied
            async with lease.exclusive():
                found = await shell.run(shlex.join(["python3", *command]), SECONDS)
                await shell.close()  # whatever it left behind ends before others measure
                return found
