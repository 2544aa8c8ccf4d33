"""Background jobs of a sandboxed shell: their output, kept up to a bound, and their state.

A job writes into a named pipe of its own, which the host reads no faster than `RATE_BYTES` a second: a flood costs the job
its own time, not the host's. Of what nobody has looked at yet the newest part is kept, and the rest counted.
"""

import asyncio
import contextlib
import os
import select
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

RUNNING = 8  # jobs of one shell at a time
REMEMBERED = 32  # ended jobs that can still be asked about, the newest ones
RATE_BYTES = 20 * 2**20
NO_GROUP = -1
_TICK_SECONDS = 0.05
_SHARE = int(RATE_BYTES * _TICK_SECONDS)
JobState = Literal["running", "ended", "killed", "lost"]


class JobFault(Exception):
    """A job cannot be started or found; the text is for the agent. Data, not an error of the infrastructure."""


@dataclass(frozen=True)
class JobReport:
    """What a job printed since the last look, how much of it was dropped (bytes), and how the job stands.

    `lost` means that its sandbox ended under it. `exit_code` is there once it has ended by itself. `killed` counts the
    processes that a kill ended.
    """

    id: str
    output: str
    dropped: int
    state: JobState
    exit_code: int | None
    seconds: float
    killed: int = 0


class Job:
    """One background job as the host sees it."""

    def __init__(self, number: int, nonce: str, pipe: Path, keep_bytes: int) -> None:
        """Open the pipe, which must exist, and collect what comes through it."""
        self.number, self.id, self.nonce = number, _name(number), nonce
        self.group = NO_GROUP  # its process group inside the sandbox
        self.state: JobState = "running"
        self.exit_code: int | None = None
        self._started, self._seconds = time.monotonic(), 0.0
        self._keep, self._dropped = keep_bytes, 0
        self._unread = bytearray()
        self._pipe = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pipe, self._collect)

    def end(self, state: JobState, exit_code: int | None = None) -> None:
        """Note how it ended; what it left running may still write."""
        if self.state == "running":
            self.state, self.exit_code, self._seconds = state, exit_code, time.monotonic() - self._started

    def report(self, killed: int = 0) -> JobReport:
        """What is new; it is not told again."""
        self._take(_SHARE)
        text, dropped = bytes(self._unread).decode(errors="replace"), self._dropped
        self._unread.clear()
        self._dropped = 0
        seconds = time.monotonic() - self._started if self.state == "running" else self._seconds
        return JobReport(self.id, text, dropped, self.state, self.exit_code, seconds, killed)

    def close(self) -> None:
        """Stop collecting; what has come can still be reported."""
        if self._timer is not None:
            self._timer.cancel()
        if self._pipe >= 0:
            self._take(_SHARE)
        if self._pipe >= 0:
            self._shut()

    def _collect(self) -> None:
        """Take one tick's share, and rest until the next when there was that much."""
        if self._take(_SHARE) >= _SHARE and self._pipe >= 0:
            self._loop.remove_reader(self._pipe)
            self._timer = self._loop.call_later(_TICK_SECONDS, self._resume)

    def _resume(self) -> None:
        if self._pipe >= 0:
            self._loop.add_reader(self._pipe, self._collect)

    def _take(self, limit: int) -> int:
        taken = 0
        while self._pipe >= 0 and taken < limit:
            try:
                piece = os.read(self._pipe, 65_536)
            except BlockingIOError:
                break
            if not piece:
                if self._hung_up():
                    self._shut()
                break
            taken += len(piece)
            self._unread += piece
            surplus = len(self._unread) - self._keep
            if surplus > 0:
                del self._unread[:surplus]
                self._dropped += surplus
        return taken

    def _hung_up(self) -> bool:
        """Whether writers have come and gone; before the first one a read finds nothing either."""
        poll = select.poll()
        poll.register(self._pipe, 0)
        return bool(poll.poll(0))

    def _shut(self) -> None:
        self._loop.remove_reader(self._pipe)
        with contextlib.suppress(OSError):
            os.close(self._pipe)
        self._pipe = -1


class Jobs:
    """The jobs of one shell by their ids; bounded in number, and so in memory."""

    def __init__(self, keep_bytes: int) -> None:
        self._keep = keep_bytes
        self._known: dict[str, Job] = {}
        self._count = 0

    @property
    def running(self) -> list[Job]:
        """Those whose command has not ended."""
        return [job for job in self._known.values() if job.state == "running"]

    @property
    def present(self) -> list[Job]:
        """Those whose sandbox is still there; a job that has ended may have left processes."""
        return [job for job in self._known.values() if job.state != "lost"]

    def open(self, nonce: str, folder: Path, owner: int | None) -> Job:
        """Make a job with a pipe in `folder` that the user `owner` may write to.

        Raises:
            JobFault: too many run.
        """
        if len(self.running) >= RUNNING:
            names = ", ".join(job.id for job in self.running)
            raise JobFault(f"{RUNNING} background jobs run already ({names}), and no more may; end one with KillBash")
        for old in [job for job in self._known.values() if job.state != "running"][:-REMEMBERED]:
            self.forget(old)
        self._count += 1
        name = _name(self._count)
        pipe = folder / name
        os.mkfifo(pipe, 0o600)
        if owner is not None:
            os.chown(pipe, owner, owner)
        job = self._known[name] = Job(self._count, nonce, pipe, self._keep)
        return job

    def get(self, name: str) -> Job:
        """The job of that id. Raises JobFault."""
        if name not in self._known:
            known = ", ".join(self._known)
            raise JobFault(f"there is no background job {name!r}; " + (f"there are {known}" if known else "none was started"))
        return self._known[name]

    def ended(self, nonce: str, exit_code: int) -> None:
        """Note that the job with this nonce ended, if one has it."""
        for job in self._known.values():
            if job.nonce == nonce:
                job.end("ended", exit_code)

    def forget(self, job: Job) -> None:
        """Drop a job and its output."""
        job.close()
        self._known.pop(job.id, None)

    def close(self) -> None:
        """The sandbox is gone, and every job with it; they can still be asked about."""
        for job in self._known.values():
            job.end("lost")
            job.group = NO_GROUP  # the next sandbox counts from the start again
            job.close()


def _name(number: int) -> str:
    return f"bash_{number}"
