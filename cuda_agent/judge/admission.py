"""Who may take memory of the device now: everybody as long as there is enough, else those who wait go one after another."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

RESERVE = 2 * 2**30  # bytes that contexts, libraries and what children cache may need besides
POLL_SECONDS = 0.5  # how often to look whether somebody else gave memory back


class Admission:
    """One per pool; `free` tells how many bytes of the device are not taken, by anybody."""

    def __init__(self, free: Callable[[], int]) -> None:
        """Nobody is admitted yet."""
        self._free = free
        self._inside = self._promised = 0
        self._changed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def admitted(self, size: int) -> AsyncIterator[Callable[[], None]]:
        """Hold the right to take `size` bytes; call what is yielded once they are taken.

        Whoever finds nobody else admitted never waits: it may fail for lack of memory, but nothing would be gained by waiting.
        """
        async with self._changed:
            while self._inside and await asyncio.to_thread(self._free) - self._promised < size + RESERVE:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), POLL_SECONDS)
            self._inside += 1
            self._promised += size
        promised = size

        def arrived() -> None:
            nonlocal promised
            self._promised -= promised
            promised = 0

        try:
            yield arrived
        finally:
            arrived()
            self._inside -= 1
            async with self._changed:
                self._changed.notify_all()
