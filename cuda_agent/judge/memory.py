"""Memory that the judge shares with one child, by device: what the ring of inputs stands in, and how answers are read.

`HostMemory` is a sealed memory file. The judge writes and compares through its own mapping, and reads a child's answers
out of the child's address space, wherever they lie there.
"""

from typing import Any, Protocol

import numpy as np

from cuda_agent.sandbox.forkserver import Child
from cuda_agent.sandbox.shared import Bytes, SharedBlock


class Memory(Protocol):
    """A block of bytes, addressed by offset; sources for `copy` are `kept` near it first."""

    descriptor: int
    size: int
    child_address: int  # where the child's trusted part says that it mapped the block

    def write(self, offset: int, values: Bytes) -> None:
        """Put bytes there."""

    def holds(self, offset: int, values: Bytes) -> bool:
        """Whether exactly these bytes stand there."""

    def keep(self, values: Bytes) -> Any:
        """Bytes in a form that `copy` takes quickly."""

    def copy(self, offset: int, kept: Any, start: int, size: int) -> None:
        """Put part of what was kept there."""

    def read(self, child: Child, address: int, buffer: memoryview) -> None:
        """Fill a buffer from the child's memory at an address of the (frozen) child's.

        Raises:
            ChildFailed: there is no such memory.
        """

    def close(self) -> None:
        """Give the block back."""


class HostMemory:
    """In the machine's memory."""

    def __init__(self, size: int) -> None:
        """Take `size` bytes."""
        self._block = SharedBlock(size)
        self.descriptor, self.size = self._block.descriptor, size
        self.child_address = 0

    @property
    def view(self) -> Bytes:
        """The block itself."""
        return self._block.view

    def write(self, offset: int, values: Bytes) -> None:
        """Put bytes there."""
        self.view[offset : offset + values.size] = values

    def holds(self, offset: int, values: Bytes) -> bool:
        """Whether exactly these bytes stand there."""
        return bool(np.array_equal(self.view[offset : offset + values.size], values))

    def keep(self, values: Bytes) -> Bytes:
        """The bytes themselves."""
        return values

    def copy(self, offset: int, kept: Bytes, start: int, size: int) -> None:
        """Put part of what was kept there."""
        self.view[offset : offset + size] = kept[start : start + size]

    def read(self, child: Child, address: int, buffer: memoryview) -> None:
        """Read the child's memory without its help."""
        child.peek_into(address, buffer)

    def close(self) -> None:
        """Give the block back."""
        self._block.close()
