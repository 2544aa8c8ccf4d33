"""Who may use the cores (or a device) now: many sharers, or one that measures alone; across processes, by flock.

A turnstile file keeps order: whoever waits for the exclusive lease holds the turnstile, so that sharers arriving later
queue behind it and it is never starved. A process that dies loses its lease with its descriptors.
"""

import asyncio
import contextlib
import fcntl
import os
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

_POLL_SECONDS = 0.002


def device_lease_path(cache_dir: Path) -> Path:
    """Where the lease on this machine's measuring device lies: one place for judges, campaigns and tools alike."""
    return cache_dir / "lease" / "device"


class Lease:
    """A lease on what `path` stands for (a file is made beside it); one object may serve several event loops."""

    def __init__(self, path: Path) -> None:
        """Make the folder of `path` if it is missing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._resource, self._turnstile = path, path.with_name(path.name + ".turn")
        self._queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()

    @contextlib.asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold the lease together with other sharers (builds, generation, tools)."""
        async with self._hold(fcntl.LOCK_SH):
            yield

    @contextlib.asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Hold the lease alone (timing)."""
        async with self._hold(fcntl.LOCK_EX):
            yield

    def is_wanted(self) -> bool:
        """Whether someone stands at the turnstile: for a holder that can give way. Sharers pass it in no time."""
        with _opened(self._turnstile) as turnstile:
            try:
                fcntl.flock(turnstile, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    @contextlib.contextmanager
    def shared_sync(self) -> Iterator[None]:
        """`shared` for code without an event loop."""
        with self._hold_sync(fcntl.LOCK_SH):
            yield

    @contextlib.contextmanager
    def exclusive_sync(self) -> Iterator[None]:
        """`exclusive` for code without an event loop."""
        with self._hold_sync(fcntl.LOCK_EX):
            yield

    @contextlib.asynccontextmanager
    async def _hold(self, mode: int) -> AsyncIterator[None]:
        queue = self._queues.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        with _opened(self._resource) as resource:
            async with queue:
                with _opened(self._turnstile) as turnstile:
                    await _acquire(turnstile, fcntl.LOCK_EX)
                    await _acquire(resource, mode)
            yield

    @contextlib.contextmanager
    def _hold_sync(self, mode: int) -> Iterator[None]:
        with _opened(self._resource) as resource:
            with _opened(self._turnstile) as turnstile:
                fcntl.flock(turnstile, fcntl.LOCK_EX)
                fcntl.flock(resource, mode)
            yield


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def _acquire(descriptor: int, mode: int) -> None:
    """Poll rather than block a thread: a cancelled waiter leaves nothing behind, and few wait at a time."""
    while True:
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            await asyncio.sleep(_POLL_SECONDS)
