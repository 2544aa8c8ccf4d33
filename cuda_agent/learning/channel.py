"""The training process's end of the parent's socket: JSON objects, one a line, commands in and events out.

Only the first process of a run has one. A parent that disappears ends the process at once, also in the middle of a
step: nobody would collect the result, and everything that is saved is saved atomically.
"""

import contextlib
import json
import math
import os
import queue
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from cuda_agent.errors import LearningError

PARENT_GONE = 70  # exit status (EX_SOFTWARE)


def finite(value: Any) -> Any:
    """The value with numbers that JSON cannot hold replaced by null, in dictionaries and lists too."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


class Channel:
    """Events to the parent and commands from it; without a socket, events go to standard output."""

    def __init__(self, path: Path | None) -> None:
        self._socket: socket.socket | None = None
        self._commands: queue.Queue[dict[str, Any]] = queue.Queue()
        self._closing = False
        if path is not None:
            self._socket = self._connect(path)
            threading.Thread(target=self._read, name="parent", daemon=True).start()

    @staticmethod
    def _connect(path: Path) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(path))
        except OSError as error:
            raise LearningError(f"socket {path} of the parent does not answer ({error}); the parent has ended") from error
        return connection

    def _read(self) -> None:
        assert self._socket is not None
        with contextlib.suppress(OSError), self._socket.makefile("rb") as lines:
            for line in lines:
                self._commands.put(json.loads(line))
        if not self._closing:
            os._exit(PARENT_GONE)

    def send(self, event: str, **fields: Any) -> None:
        """Tell the parent something; events have the key `event` and what belongs to it."""
        line = json.dumps(finite({"event": event, **fields}), allow_nan=False)
        if self._socket is None:
            print(line, file=sys.stdout, flush=True)
        else:
            self._socket.sendall(line.encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """The next command; waits for it."""
        return self._commands.get()

    def close(self) -> None:
        """Part without being taken for an orphan."""
        self._closing = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # close() alone would wait for the reader's end of the file
            self._socket.close()
