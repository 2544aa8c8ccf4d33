"""Memory that the trusted side shares with one child: a sealed memory file that the child finds as descriptor `SHARED`.

Neither side can change its size, so touching it never kills the reader. The child may write to all of it at any time:
what the trusted side reads there it reads once, or while the child is frozen, and believes no more than a message.
"""

import fcntl
import mmap
import os
from typing import Any, Self

import numpy as np

SHARED = 4
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class SharedBlock:
    """`size` zeroed bytes: `descriptor` to give to `ForkServer.open`, `view` [size] to read and write. Close it after use."""

    def __init__(self, size: int) -> None:
        """Take the memory; pages count only once they are written."""
        self.descriptor = os.memfd_create("shared", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, size)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals)
            self.view = attach(size, self.descriptor)
        except BaseException:
            os.close(self.descriptor)
            raise

    def __enter__(self) -> Self:
        """The block itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Let the memory go; arrays made from `view` stay valid as long as they live."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
            self.view = np.empty(0, np.uint8)


def attach(size: int, descriptor: int = SHARED) -> Bytes:
    """Map the block, in the child as descriptor `SHARED`: a writable array [size] of bytes that both sides see."""
    return np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
