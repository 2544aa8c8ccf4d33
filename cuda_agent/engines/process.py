"""The child process of an engine: its start, its last words, its end. Its group ends with it, and it with this process."""

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from cuda_agent.errors import EngineError

_KEPT_LINES, _TOLD_LINES = 20, 3


class EngineProcess:
    """One server process; `start` once, `close` in the end."""

    def __init__(self, on_output: Callable[[str], None] | None = None) -> None:
        """`on_output` gets each line that the process writes, but for what the owner reads itself."""
        self._on_output = on_output
        self._tail: deque[str] = deque(maxlen=_KEPT_LINES)
        self._process: asyncio.subprocess.Process | None = None
        self._readers: list[asyncio.Task[None]] = []

    async def start(self, command: Sequence[str], environment: Mapping[str, str], *, reads_stdout: bool = False) -> None:
        """Start the command in a session of its own; it should end when its standard input closes.

        With `reads_stdout` the owner reads standard output through `stdout`.

        Raises:
            EngineError: the command cannot be run.
        """
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=pipe, env=dict(environment), start_new_session=True
            )
        except OSError as error:
            raise EngineError(f"the model server could not be started: {command[0]}: {error.strerror}") from error
        streams = (self._process.stderr,) if reads_stdout else (self._process.stderr, self._process.stdout)
        self._readers = [asyncio.create_task(self._read(stream)) for stream in streams if stream is not None]

    @property
    def stdout(self) -> asyncio.StreamReader:
        """Standard output, for an owner that reads it."""
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout

    @property
    def is_alive(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    async def ended(self) -> None:
        """Wait for the end and, shortly, for the last words."""
        assert self._process is not None
        await self._process.wait()
        await asyncio.wait(self._readers, timeout=1.0)

    async def close(self) -> None:
        """Kill the process and its group, if they live; may be called twice."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        for task in self._readers:
            task.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    def last_words(self) -> str:
        """What it wrote last."""
        return " | ".join(line for line in list(self._tail)[-_TOLD_LINES:] if line) or "it said nothing"

    async def _read(self, stream: asyncio.StreamReader) -> None:
        async for raw in stream:
            line = raw.decode(errors="replace").rstrip()
            self._tail.append(line)
            if self._on_output:
                self._on_output(line)
