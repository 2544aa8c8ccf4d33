"""Memory that the judge shares with one child, by device: what the ring of inputs stands in, and how answers are read.

`HostMemory` is a sealed memory file. The judge writes and compares through its own mapping, and reads a child's answers
out of the child's address space, wherever they lie there.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cuda_agent.sandbox.forkserver import Child
from cuda_agent.sandbox.shared import Bytes, SharedBlock

TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3}  # of native/refresh.cpp
BYTES = 4


class Memory(Protocol):
    """A block of bytes, addressed by offset; sources for `renew` are `kept` near it first."""

    descriptor: int
    size: int
    child_address: int  # where the child's trusted part says that it mapped the block

    def write(self, offset: int, values: Bytes) -> None:
        """Put bytes there."""

    def holds(self, offset: int, values: Bytes) -> bool:
        """Whether exactly these bytes stand there."""

    def keep(self, values: Bytes) -> Any:
        """Bytes in a form that `renew` takes quickly."""

    def renew(self, offset: int, kept: Any, size: int, dtype: str, shift: int, factor: float) -> None:
        """Write what was kept there (`size` bytes), shifted by `shift` elements and scaled, past the caches.

        Other types than floating-point ones are written as they are.
        """

    def read(self, child: Child, address: int, buffer: memoryview) -> None:
        """Fill a buffer from the child's memory at an address of the (frozen) child's.

        Raises:
            ChildFailed: there is no such memory.
        """

    def close(self) -> None:
        """Give the block back."""


class HostMemory:
    """In the machine's memory."""

    def __init__(self, size: int, library: Path) -> None:
        """Take `size` bytes; `library` is the compiled native/refresh.cpp."""
        self._refresh = _loaded(library).refresh
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

    def renew(self, offset: int, kept: Bytes, size: int, dtype: str, shift: int, factor: float) -> None:
        """Write fresh values past the caches."""
        kind = TYPES.get(dtype, BYTES)
        width = np.dtype("u1" if kind == BYTES else "u2" if dtype == "bfloat16" else dtype).itemsize
        if size:
            addresses = (self.view.ctypes.data + offset, kept.ctypes.data)
            self._refresh(*addresses, size // width, 0 if kind == BYTES else shift, kind, factor)

    def read(self, child: Child, address: int, buffer: memoryview) -> None:
        """Read the child's memory without its help."""
        child.peek_into(address, buffer)

    def close(self) -> None:
        """Give the block back."""
        self._block.close()


@cache
def _loaded(library: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(library))
    loaded.refresh.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_int, ctypes.c_double]
    loaded.refresh.restype = None
    return loaded
