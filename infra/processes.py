"""Long-lived child processes that outlive the command that started them.

A pid file holds pid and start time, so that a recycled pid is never taken for ours and never signalled. Children get
default signal handling whatever their parent ignores, a session of their own (a Ctrl-C reaches only the command, which
then stops them in order), and a log file.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from pathlib import Path

import psutil

from cuda_agent.errors import ServiceError

_DEFAULT_SIGNALS = ("env", "--default-signal=INT,TERM,HUP,PIPE,CHLD", "--")


@dataclass(frozen=True)
class ManagedProcess:
    """One service's process, known by its pid file."""

    name: str
    pid_file: Path
    log: Path
    stop_signal: int = signal.SIGTERM

    def process(self) -> psutil.Process | None:
        """The running process, or None: never another one that got the same pid."""
        try:
            record = json.loads(self.pid_file.read_text())
            process = psutil.Process(record["pid"])
            same = abs(process.create_time() - record["created"]) < 1.0
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except (OSError, ValueError, TypeError, KeyError, psutil.NoSuchProcess):
            return None

    def start(self, command: Sequence[str], environment: Mapping[str, str], cwd: Path | None = None) -> None:
        """Start it and record its pid.

        Raises:
            ServiceError: the program is not there or the state folder cannot be written.
        """
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self.pid_file.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("ab") as output:
                child = subprocess.Popen(
                    [*_DEFAULT_SIGNALS, *command],
                    env=dict(environment),
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            created = psutil.Process(child.pid).create_time()
            write_atomically(self.pid_file, json.dumps({"pid": child.pid, "created": created, "command": list(command)}))
        except OSError as error:
            raise ServiceError(f"{self.name} could not be started: {error.filename or ''} {error.strerror}") from error

    def wait_ready(self, ready: Callable[[], bool], seconds: float) -> None:
        """Poll `ready` until it is true.

        Raises:
            ServiceError: the process ended or was not ready in time; the message ends with its log's last line.
        """
        deadline = time.monotonic() + seconds
        while not ready():
            if self.process() is None:
                raise ServiceError(f"{self.name} stopped while starting: {self.last_line()}; its log is {self.log}")
            if time.monotonic() > deadline:
                raise ServiceError(f"{self.name} was not ready after {seconds:.0f} s: {self.last_line()}; its log is {self.log}")
            time.sleep(0.05)

    def stop(self, seconds: float = 15.0) -> bool:
        """Ask it to end, then kill its whole session. Returns whether it was running."""
        process = self.process()
        if process is not None:
            children = _children(process)
            _signal(process, self.stop_signal)
            if not _gone(process, seconds):
                _signal(process, signal.SIGKILL)
                _gone(process, 5.0)
            for child in children:
                _signal(child, signal.SIGKILL)
        self.pid_file.unlink(missing_ok=True)
        return process is not None

    def last_line(self) -> str:
        """The log's last line that says something."""
        try:
            with self.log.open("rb") as stream:
                stream.seek(max(0, os.fstat(stream.fileno()).st_size - 4_096))
                lines = [line.strip() for line in stream.read().decode(errors="replace").splitlines() if line.strip()]
        except OSError:
            lines = []
        return lines[-1][:300] if lines else "it said nothing"


def write_atomically(path: Path, content: str) -> None:
    """Write a small file so that a reader sees the old text or the new."""
    partial = path.with_suffix(f".{os.getpid()}.part")
    partial.write_text(content)
    partial.replace(path)


@contextmanager
def exclusively(path: Path) -> Iterator[None]:
    """Hold a lock file: starting and stopping services happens in one process at a time.

    Raises:
        ServiceError: the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("w")
    except OSError as error:
        raise ServiceError(
            f"state folder {path.parent} cannot be written: {error.strerror}; set CUDA_AGENT_HOME to one that can"
        ) from error
    with stream:
        flock(stream, LOCK_EX)
        yield


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _signal(process: psutil.Process, number: int) -> None:
    """Send a signal unless the process has gone; psutil checks the start time once more."""
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def _gone(process: psutil.Process, seconds: float) -> bool:
    """Wait for the end; reaps it when it is our own child."""
    try:
        process.wait(seconds)
    except psutil.TimeoutExpired:
        return False
    return True
