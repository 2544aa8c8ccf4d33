"""What a problem's code tries to do outside of its process: write files, open sockets, start processes. Runs in children.

The sandbox makes all of that harmless; this makes it known, and stops it with PermissionError. Only what happens under a
frame of the problem's own text counts, and no import: libraries may do as they like. Native code is not seen.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

PROCESSES = ("subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.spawn")
FILES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Watch:
    """One for a process: audit hooks cannot be taken off again."""

    def __init__(self, text_file: str) -> None:
        """Watch code whose frames name `text_file`, from now on, while `on` is entered."""
        self._text_file, self._active = text_file, False
        self.seen = ""
        sys.addaudithook(self._hook)

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Watch the block; `seen` is then what was tried first, in words, or empty."""
        self.seen, self._active = "", True
        try:
            yield
        finally:
            self._active = False

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._active and (found := _described(event, arguments)) and self._is_the_problems():
            self.seen = self.seen or found
            raise PermissionError(f"the problem {found}")

    def _is_the_problems(self) -> bool:
        frame = sys._getframe(2)
        while frame is not None:
            name = frame.f_code.co_filename
            if name == self._text_file:
                return True
            if name.startswith("<frozen importlib"):
                return False
            frame = frame.f_back  # type: ignore[assignment]
        return False


def _described(event: str, arguments: tuple[Any, ...]) -> str:
    if event == "open":
        path, mode, flags = arguments[:3]
        writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool((flags or 0) & WRITES)
        return f"opens {str(path)[:80]} for writing" if writes and str(path) != os.devnull else ""
    if event in ("socket.__new__", "socket.connect", "socket.bind", "socket.getaddrinfo"):
        return "opens a socket"
    if event in PROCESSES:
        return "starts a process"
    return f"changes files ({event})" if event in FILES else ""
