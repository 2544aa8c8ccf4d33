"""The judge's door for one episode: a unix socket that utils/verification.py and utils/profiling.py talk to from the sandbox.

The submission is read from the workspace at each request, the problem never is. Requests are served one at a time and no
more often than the rate allows; every verdict given is recorded in order. Malformed requests get an answer, not an error.
"""

import asyncio
import json
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from cuda_agent.judge.build import MANIFEST_VARIABLE
from cuda_agent.judge.pool import JudgePool, profile_text
from cuda_agent.judge.verdict import Submission, Verdict

SOCKET_VARIABLE = "CUDA_AGENT_JUDGE_SOCKET"
MAX_REQUEST = 4_096


@dataclass(frozen=True)
class Given:
    """A verdict that the agent was given: by which command, on which submission, and when (seconds since the start)."""

    command: str
    submission: Submission
    verdict: Verdict
    seconds: float


class JudgeSocket:
    """Async context manager. Pass `sockets`, `readable` and `environment` to the episode's Shell."""

    def __init__(
        self, pool: JudgePool, problem_code: str, workspace: Path, *, interval_seconds: float = 0.2, max_requests: int = 1_000
    ) -> None:
        """Serve `workspace`; `interval_seconds` lies at least between two answers, `max_requests` ends the service."""
        self._pool, self._code, self._workspace = pool, problem_code, workspace
        self._interval, self._left = interval_seconds, max_requests
        self._folder: Path | None = None
        self._server: asyncio.Server | None = None
        self._turn = asyncio.Lock()
        self._last, self._started = 0.0, time.monotonic()
        self.given: list[Given] = []

    async def __aenter__(self) -> Self:
        """Open the socket."""
        self._folder = Path(tempfile.mkdtemp(prefix="judge-"))
        self._server = await asyncio.start_unix_server(self._serve, self.path, limit=MAX_REQUEST)
        os.chmod(self.path, 0o666)  # its folder is closed to others; the sandbox gets the socket bound in
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close it."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def path(self) -> Path:
        """The socket on the host."""
        assert self._folder is not None, "use JudgeSocket in `async with`"
        return self._folder / "socket"

    @property
    def sockets(self) -> dict[str, Path]:
        """For Shell(sockets=...)."""
        return {SOCKET_VARIABLE: self.path}

    @property
    def readable(self) -> list[Path]:
        """For Shell(readable=...): the glue that utils/compile.py links with."""
        return [self._pool.manifest.path.parent]

    @property
    def environment(self) -> dict[str, str]:
        """For Shell(environment=...)."""
        return {MANIFEST_VARIABLE: str(self._pool.manifest.path)}

    @property
    def best(self) -> Given | None:
        """The best verdict given: highest reward, then highest speed-up against torch.compile (or eager)."""
        return max(self.given, key=_rank, default=None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5.0):
                line = await reader.readline()
            text, passed = await self._answer(line)
            writer.write(json.dumps({"text": text, "passed": passed}).encode())
            await writer.drain()
        except (OSError, ValueError, TimeoutError):
            return  # the other end is gone or sent no line
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> tuple[str, bool]:
        try:
            command = json.loads(line)["command"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return "[FAIL] malformed request", False
        if command not in ("verify", "profile"):
            return "[FAIL] unknown command", False
        async with self._turn:
            if self._left <= 0:
                return "[FAIL] no requests left in this episode", False
            self._left -= 1
            await asyncio.sleep(max(0.0, self._last + self._interval - time.monotonic()))
            try:
                return await self._judge(command)
            finally:
                self._last = time.monotonic()

    async def _judge(self, command: str) -> tuple[str, bool]:
        submission = await asyncio.to_thread(Submission.from_folder, self._workspace)
        if command == "verify":
            verdict = await self._pool.verify(self._code, submission)
            text = verdict.feedback()
        else:
            verdict = await self._pool.profile_verdict(self._code, submission)
            text = profile_text(verdict)
        self.given.append(Given(command, submission, verdict, time.monotonic() - self._started))
        return text, verdict.status == "correct"


def _rank(given: Given) -> tuple[float, float]:
    verdict = given.verdict
    reward = -2.0 if verdict.reward is None else verdict.reward
    return reward, verdict.speedup_vs_compile or verdict.speedup_vs_eager or 0.0
