"""Candidates side by side on one GPU: each gets memory of its own, and while one is timed the others stand still.

On a processor a child's limits see to that. A GPU divides its memory among whoever comes, and its time in slices: a
candidate would be refused for what its neighbours took, or found five times as slow as it is.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, NamedTuple

from cuda_agent.judge.device import CONTEXT
from cuda_agent.sandbox.forkserver import Child, ChildFailed

LEAST = 6 * 2**30  # bytes for each candidate, context included
# As many as an examination holds at a time: of a problem's inputs and outputs, where they are about as large, or where outputs
# are much larger; of its weights; and bytes to tell the structure of inputs (docs/experiments.md).
EVEN, WIDENING, WEIGHTS, STRUCTURE = (6, 6), (4, 8), 4, 5 * 2**28
MORE = 2  # times as much for one that lacked memory, whose own temporaries nobody knew


class Room(NamedTuple):
    """Memory that one candidate holds."""

    size: int  # bytes
    share: float  # of the device
    is_all: bool  # that there is


def needed(facts: Mapping[str, Any]) -> int:
    """Bytes that an examination takes, the problem's own temporaries left out; 0 where it does not tell its sizes."""
    match facts.get("meta_bytes"):
        case [int(inputs), int(outputs), int(weights)]:
            return max(a * inputs + b * outputs for a, b in (EVEN, WIDENING)) + WEIGHTS * weights + STRUCTURE
    return 0


class Company:
    """Of at most `workers` children; belongs to one event loop."""

    def __init__(self, free: int, total: int, workers: int) -> None:
        """Share out `free` of the device's `total` bytes."""
        self._total, self._room = total, max(1, free - workers * CONTEXT)
        self._least = self._room // workers
        self._taken = 0
        self._turn, self._changed = asyncio.Lock(), asyncio.Condition()
        self._running: set[Child] = set()
        self._gate = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def room(self, size: int) -> AsyncIterator[Room]:
        """Hold memory for `size` bytes, an equal share at least and all there is at most.

        First come, first served: whoever waits for much is not passed by those who want little.
        """
        wanted = min(self._room, max(self._least, size))
        async with self._turn, self._changed:
            await self._changed.wait_for(lambda: self._taken + wanted <= self._room)
            self._taken += wanted
        try:
            yield Room(wanted, wanted / self._total, wanted == self._room)
        finally:
            self._taken -= wanted
            async with self._changed:
                self._changed.notify_all()

    @contextlib.asynccontextmanager
    async def running(self, child: Child) -> AsyncIterator[None]:
        """The child is at work, and stands still when another one wants quiet."""
        async with self._gate:
            self._running.add(child)
        try:
            yield
        finally:
            self._running.discard(child)

    @contextlib.asynccontextmanager
    async def quiet(self) -> AsyncIterator[None]:
        """No child is running meanwhile, and none begins; one that is being opened goes on."""
        async with self._gate:
            others = list(self._running)
            freezing = asyncio.ensure_future(asyncio.to_thread(_freeze, others))
            try:
                await asyncio.shield(freezing)
                yield
            finally:
                await asyncio.wait([freezing])  # its thread cannot be cancelled, and would stop children after they were let go
                _thaw(others)


def _freeze(children: Iterable[Child]) -> None:
    for child in children:
        with contextlib.suppress(ChildFailed):  # it has ended, or stops a little later: whoever waits for its answer is told
            child.freeze()


def _thaw(children: Iterable[Child]) -> None:
    for child in children:
        with contextlib.suppress(ChildFailed):
            child.thaw()
