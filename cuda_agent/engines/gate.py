"""The shared side of the device's lease, for a process that computes in short bursts.

The same two files and order as judge/lease.py (which lies above this layer): take the turnstile, then the resource, then
leave the turnstile. Whoever waits to measure holds the turnstile, so the next burst queues behind it.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

Gate = Callable[[], AbstractContextManager[None]]


def shared_gate(path: Path) -> Gate:
    """A context manager factory that holds the lease at `path` together with other sharers; blocks while one measures.

    Raises:
        OSError: the lease file cannot be opened.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    resource = os.open(path, flags, 0o666)
    turnstile = os.open(path.with_name(path.name + ".turn"), flags, 0o666)

    @contextlib.contextmanager
    def gate() -> Iterator[None]:
        fcntl.flock(turnstile, fcntl.LOCK_EX)
        try:
            fcntl.flock(resource, fcntl.LOCK_SH)
        finally:
            fcntl.flock(turnstile, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(resource, fcntl.LOCK_UN)

    return gate
