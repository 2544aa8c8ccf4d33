"""A child that seals itself and then tries things: for test_sealing."""

import ctypes
import mmap
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cuda_agent.judge.candidate import _loaded
from cuda_agent.sandbox.seccomp import forbid_processes

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
FAILED = ctypes.c_void_p(-1).value


class Sealed:
    """Holds the judge's module."""

    def __init__(self, path: str) -> None:
        self.module = _loaded("judge_seal", path)

    def facts(self, payload: dict[str, Any]) -> list[Any]:
        """As `Candidate.begin` tells them."""
        pattern, entries, code = self.module.facts()
        return [pattern, np.array(entries, np.uint64), code]

    def seal(self, payload: dict[str, Any]) -> None:
        """Take everything."""
        self.module.seal()

    def own_code(self, payload: dict[str, Any]) -> list[int]:
        """Some code that stays executable."""
        address = ctypes.cast(LIBC.mmap, ctypes.c_void_p).value or 0
        return [address, address + 1]

    def refuse(self, payload: dict[str, Any]) -> None:
        """From here on, as candidates are."""
        self.module.refuse_from_now_on({"os.system"}, {"ctypes."}, {"cffi"}, set(), "is not for tests")

    def attempt(self, payload: dict[str, str]) -> str:
        """Try one thing; OK where it went as it should."""
        try:
            return str(getattr(self, payload["what"])())
        except (RuntimeError, PermissionError) as error:
            return str(error)

    def tells_again(self) -> str:
        """Where everything lies."""
        self.module.facts()
        return str(self.module.facts())

    def opens(self) -> str:
        """This process's memory and a library, under names that are not theirs; an ordinary file stays open to it."""
        Path("/tmp/plain").write_text("x")
        os.symlink(torch._C.__file__, "/tmp/link")
        os.chdir("/proc")
        found = [str(self._opened(name)) for name in ("//proc/self/maps", "self/maps", "/dev/fd/../maps", "/tmp/link", b"/proc")]
        os.chdir("/tmp")
        return "OK" if self._opened("plain") == "x" and all("is not for tests" in one for one in found) else str(found)

    def _opened(self, name: str | bytes) -> str:
        try:
            return Path(os.fsdecode(name)).read_text() if isinstance(name, str) else str(os.open(name, os.O_RDONLY))
        except PermissionError as error:
            return str(error)

    def multiplies(self) -> str:
        """An operator."""
        return str(torch.ones(2) * 2)

    def maps_code(self) -> str:
        """Executable memory."""
        return "OK" if LIBC.mmap(None, 4096, 7, ANONYMOUS, -1, 0) == FAILED else "it got executable memory"

    def makes_code(self) -> str:
        """Memory made executable."""
        plain = LIBC.mmap(None, 4096, 3, ANONYMOUS, -1, 0)
        return "OK" if plain != FAILED and LIBC.mprotect(plain, 4096, 5) == -1 else "it made code"

    def allocates(self) -> str:
        """A large tensor and plain memory protection."""
        plain = LIBC.mmap(None, 4096, 3, ANONYMOUS, -1, 0)
        return "OK" if torch.empty(2**24).numel() == 2**24 and LIBC.mprotect(plain, 4096, 1) == 0 else "no memory"

    def copies(self) -> str:
        """Allowed operators."""
        return "OK" if torch.arange(6).view(2, 3).t().contiguous().shape == (3, 2) else "no copy"

    def starts_threads(self) -> str:
        """A thread."""
        found: list[str] = []
        thread = threading.Thread(target=found.append, args=("OK",))
        thread.start()
        thread.join()
        return found[0]


def open_sealed(payload: dict[str, str]) -> Sealed:
    """Entry for the fork server."""
    forbid_processes()
    return Sealed(payload["seal"])
