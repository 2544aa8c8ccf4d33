"""Memory that the judge shares with one child, by device: what the ring of inputs stands in, and how answers are read.

`HostMemory` is a sealed memory file. The judge writes and compares through its own mapping, and reads a child's answers
out of the child's address space, wherever they lie there. `cuda_memory.DeviceMemory` is its like on a GPU.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from cuda_agent.judge.answers import Where, gathered
from cuda_agent.sandbox.forkserver import Child
from cuda_agent.sandbox.shared import Bytes, SharedBlock

TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3}  # of native/refresh.cpp
REAL = {"complex64": "float32", "complex128": "float64"}
WIDTHS = (4, 8, 2, 2)  # bytes of each
BYTEWISE, BYTES = "uint8", 4


class Mix(NamedTuple):
    """Two kept sources, how far each is shifted, in elements, and the first one's share; then each value is bent.

    Of what a magnitude has beyond the `knee`, `bend` times as much is added to it, and all are multiplied by `scale`.
    """

    one: Any
    other: Any
    first: int
    second: int
    share: float
    bend: float = 0.0
    knee: float = 0.0
    scale: float = 1.0


class Memory(Protocol):
    """A block of bytes, addressed by offset; sources for `renew` are `kept` near it first."""

    descriptor: int
    size: int
    child_address: int  # where the child's trusted part says that it mapped the block
    sample_bytes: int  # of inputs and answers that may be kept for checking

    def write(self, offset: int, values: Any) -> None:
        """Put bytes there: numpy's, or where this is a GPU's memory a `DeviceArray`'s."""

    def holds(self, offset: int, values: Any) -> bool:
        """Whether exactly these bytes stand there."""

    def keep(self, values: Any) -> Any:
        """Bytes in a form that `renew` takes quickly."""

    def renew(self, offset: int, mix: Mix, size: int, dtype: str) -> None:
        """Write a mix of what was kept there (`size` bytes), past the caches.

        With type BYTEWISE the first source alone is written, shifted.
        """

    def taken(self, offset: int, size: int) -> Any:
        """A copy of the bytes there, near to where they were."""

    def bring(self, child: Child, place: Where) -> Any:
        """A copy of a tensor's elements out of the (frozen) child's memory, near to where they were.

        Raises:
            ChildFailed: there is no such memory.
        """

    def settle(self) -> None:
        """Return once the device has nothing left to do that came before; what a child left running there is waited for."""

    def close(self) -> None:
        """Give the block back."""


class HostMemory:
    """In the machine's memory."""

    sample_bytes = 64 * 2**20

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

    def renew(self, offset: int, mix: Mix, size: int, dtype: str) -> None:
        """Write fresh values past the caches."""
        if size:
            kind, count, first, second = kernel_arguments(mix, size, dtype)
            addresses = (self.view.ctypes.data + offset, mix.one.ctypes.data, mix.other.ctypes.data)
            self._refresh(*addresses, count, first, second, kind, mix.share, mix.bend, mix.knee, mix.scale)

    def taken(self, offset: int, size: int) -> Bytes:
        """A copy of the bytes there."""
        return self.view[offset : offset + size].copy()

    def bring(self, child: Child, place: Where) -> "np.ndarray[Any, Any]":
        """Read the child's memory without its help."""
        return gathered(child.peek_into, place)

    def settle(self) -> None:
        """A frozen child has nothing running."""

    def close(self) -> None:
        """Give the block back."""
        self._block.close()


def kernel_arguments(mix: Mix, size: int, dtype: str) -> tuple[int, int, int, int]:
    """Type, count and shifts as native/refresh takes them."""
    parts = 2 if dtype.startswith("complex") else 1  # a complex number is two real ones side by side
    kind = TYPES.get(REAL.get(dtype, dtype), BYTES)
    return (kind, size, mix.first, 0) if kind == BYTES else (kind, size // WIDTHS[kind], parts * mix.first, parts * mix.second)


@cache
def _loaded(library: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(library))
    pointers, numbers = [ctypes.c_void_p] * 3, [ctypes.c_long] * 3
    loaded.refresh.argtypes = [*pointers, *numbers, ctypes.c_int, *[ctypes.c_double] * 4]
    loaded.refresh.restype = None
    return loaded
