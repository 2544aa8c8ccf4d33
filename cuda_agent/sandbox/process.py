"""A process of untrusted code seen from outside: stopped, continued and read without its help.

What its memory holds while it is stopped is what its threads left there, provided that nothing else may write to it or
continue it: no other process of its user, no armed timer (see `seccomp.forbid_processes`), no device. Each call names the
process by a descriptor or checks it against one, so a process that took over its number is never touched or believed.
"""

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cuda_agent.sandbox import kernel

if TYPE_CHECKING:
    from cuda_agent.sandbox.kernel import Writable

SPIN_SECONDS, STEP_SECONDS = 0.000_05, 0.000_02
BLOCK = "/memfd:shared"  # how the kernel names a mapping of `sandbox.shared`'s memory file
_STOPPED, _GONE = b"Tt", b"ZX"


class _Mapping(NamedTuple):
    """A line of /proc/PID/maps."""

    start: int
    end: int
    mode: str
    path: str


class WentOnError(Exception):
    """A stopped process was running when it was to be continued: what was read from it in between proves nothing."""


class Process:
    """Handle of one process; raises ProcessLookupError once that has ended. Usable from any thread."""

    def __init__(self, pid: int) -> None:
        """Take a handle of the living process `pid`."""
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)
        self._held = False

    def __del__(self) -> None:
        """Let the handle go only when no thread can be using it any more."""
        with contextlib.suppress(AttributeError, OSError):
            os.close(self._descriptor)

    def stop(self, seconds: float) -> None:
        """Stop all threads and return when they have stopped.

        Raises:
            TimeoutError: one still ran after `seconds`.
        """
        self._signal(signal.SIGSTOP)
        start = time.monotonic()
        while not self._has_stopped():
            passed = time.monotonic() - start
            if passed > seconds:
                raise TimeoutError
            if passed > SPIN_SECONDS:
                time.sleep(STEP_SECONDS)  # a thread stops itself: it may need the very core that this one holds
        self._held = True

    def go_on(self) -> int:
        """Continue all threads; when that was (`time.perf_counter_ns`).

        Raises:
            WentOnError: it had been stopped and was running nevertheless.
        """
        stayed = not self._held or self._has_stopped()
        self._held = False
        started = time.perf_counter_ns()
        self._signal(signal.SIGCONT)
        if not stayed:
            raise WentOnError
        return started

    def read_into(self, address: int, buffer: "Writable") -> None:
        """Fill `buffer` from the process's memory at `address`.

        Raises:
            OSError: EFAULT for memory that cannot be read, EPERM where this process may not read the other's.
        """
        kernel.read_memory(self.pid, address, buffer)
        self._signal(0)

    def gather(self, addresses: "np.ndarray[Any, Any]", size: int) -> "np.ndarray[Any, Any]":
        """`size` bytes from each of the addresses (uint64): an array of bytes, one row each; raises as `read_into`."""
        found = np.empty((len(addresses), size), np.uint8)
        kernel.gather_memory(self.pid, addresses, found.reshape(-1))
        self._signal(0)
        return found

    def executable(self) -> list[tuple[int, int]]:
        """Start and end of every mapping that may be executed."""
        return [(mapping.start, mapping.end) for mapping in self._mappings() if "x" in mapping.mode]

    def shared(self) -> list[tuple[int, int]]:
        """Address and size of every mapping of the block that it shares with the trusted side (`sandbox.shared`)."""
        return [(mapping.start, mapping.end - mapping.start) for mapping in self._mappings() if mapping.path.startswith(BLOCK)]

    def _mappings(self) -> Iterator[_Mapping]:
        for line in self._proc("maps").splitlines():
            span, mode, _, _, _, *path = line.split(maxsplit=5)
            start, _, end = span.partition("-")
            yield _Mapping(int(start, 16), int(end, 16), mode, path[0] if path else "")

    def filters(self) -> int:
        """How many filters of system calls are installed in its first thread."""
        found = re.search(r"^Seccomp_filters:\s*(\d+)", self._proc("status"), re.MULTILINE)
        return int(found[1]) if found else 0

    def _proc(self, name: str) -> str:
        try:
            text = Path(f"/proc/{self.pid}/{name}").read_text()
        except FileNotFoundError as error:
            raise ProcessLookupError from error
        self._signal(0)
        return text

    def write_from(self, address: int, buffer: "Writable") -> None:
        """Copy `buffer` into the process's memory at `address`; raises as `read_into`."""
        kernel.write_memory(self.pid, address, buffer)
        self._signal(0)

    def hides_memory(self) -> bool:
        """Whether it made itself unreadable for its own user (PR_SET_DUMPABLE): its /proc files belong to root then."""
        with contextlib.suppress(OSError):
            return os.geteuid() != 0 and os.stat(f"/proc/{self.pid}/mem").st_uid != os.geteuid()
        return False

    def _signal(self, number: int) -> None:
        signal.pidfd_send_signal(self._descriptor, number)

    def _has_stopped(self) -> bool:
        main = self._state(str(self.pid))
        if main in _GONE:
            raise ProcessLookupError
        if main not in _STOPPED:
            return False
        threads = self._threads()
        stopped = all(self._state(thread) in _STOPPED for thread in threads if thread != str(self.pid))
        # A listing misses a thread that was made after it, and those behind one that ends while it is listed: but one more
        # that names the same threads, all stopped, is whole.
        stopped = stopped and self._threads() == threads
        self._signal(0)  # it is still there, so all of this was about it
        return stopped

    def _threads(self) -> list[str]:
        try:
            return os.listdir(f"/proc/{self.pid}/task")
        except FileNotFoundError as error:
            raise ProcessLookupError from error

    def _state(self, thread: str) -> bytes:
        """The letter of a thread's state; `X` for one that has gone."""
        try:
            descriptor = os.open(f"/proc/{self.pid}/task/{thread}/stat", os.O_RDONLY)
        except FileNotFoundError:
            return b"X"
        try:
            return os.read(descriptor, 512).rpartition(b") ")[2][:1] or b"X"
        except ProcessLookupError:
            return b"X"
        finally:
            os.close(descriptor)


def lists_children() -> bool:
    """Whether /proc names a process's children here (CONFIG_PROC_CHILDREN)."""
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def descend(pid: int, levels: int) -> int | None:
    """The process `levels` generations below `pid`, where each has one child; None while it is not there."""
    for _ in range(levels):
        children = kernel.children_of(pid)
        if len(children) != 1:
            return None
        pid = children[0]
    return pid
