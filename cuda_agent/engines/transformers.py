"""The token engine that runs a policy with transformers, in a child process on a CPU or one GPU.

The parent imports no torch. The child serves all episodes of a shard over a unix socket, with one decode loop; it dies with
the parent. One policy at a time: `load_policy` waits until no request is in flight.
"""

import asyncio
import contextlib
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cuda_agent.engines.base import Generation, Sampling
from cuda_agent.engines.process import EngineProcess
from cuda_agent.errors import EngineError

_LINE_LIMIT = 64 * 2**20
_START_SECONDS = 120.0


class TransformersEngine:
    """Client and supervisor of one `transformers_server` process; use `await start(...)` or `async with`."""

    def __init__(
        self,
        weights: Path | None = None,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        rows: int = 64,
        threads: int = 1,
        lease_path: Path | None = None,
        on_output: Callable[[str], None] | None = None,
    ) -> None:
        """Describe the server.

        Args:
            weights: folder of a causal LM (config, safetensors); its `eos_token_id` is the end-of-turn token. Without one,
                `load_policy` must come before the first request.
            device: torch device of the child.
            dtype: float32 or bfloat16.
            rows: sequences decoded at once; more wait.
            threads: CPU threads of the child.
            lease_path: lease file; its shared side is held during each decode step.
            on_output: gets each line that the child writes to standard error.
        """
        self.context_tokens: int | None = None  # of the policy loaded
        self._weights = weights
        self._arguments = ["--device", device, "--dtype", dtype, "--rows", str(rows), "--threads", str(threads)]
        self._arguments += ["--lease", str(lease_path)] if lease_path else []
        self._threads = threads
        self._process = EngineProcess(on_output)
        self._ids = itertools.count()
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "TransformersEngine":
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start the child and load the policy, if one was named. Raises EngineError."""
        self._folder = tempfile.TemporaryDirectory(prefix="cuda-agent-engine-")
        socket = Path(self._folder.name) / "engine.sock"
        command = ["-m", "cuda_agent.engines.transformers_server", "--socket", str(socket)]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(self._threads)}
        try:
            await self._process.start([sys.executable, *command, *self._arguments], environment, reads_stdout=True)
            await self._connect(socket)
            if self._weights is not None:
                await self.load_policy(self._weights)
        except BaseException:
            await self.close()
            raise

    async def _connect(self, socket: Path) -> None:
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), _START_SECONDS)
        except TimeoutError as error:
            raise EngineError(f"the model server did not start within {_START_SECONDS:.0f} s") from error
        if line.strip() != b"ready":
            await self._process.ended()
            raise EngineError(f"the model server could not start: {self._process.last_words()}")
        reader, self._writer = await asyncio.open_unix_connection(str(socket), limit=_LINE_LIMIT)
        self._tasks.append(asyncio.create_task(self._read_answers(reader)))

    @property
    def is_alive(self) -> bool:
        """Whether its process was started and can still be asked."""
        return self._writer is not None and not self._writer.is_closing()

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Generation:
        """Sample one answer; cancelling the awaiting task drops the sequence in the server. Raises EngineError."""
        answer = await self._ask({"op": "generate", "prompt": list(prompt_ids), "sampling": asdict(sampling)})
        return Generation(tuple(answer["token_ids"]), tuple(answer["logprobs"]), answer["finish"], answer["seconds"])

    async def load_policy(self, weights: Path) -> None:
        """Serve the weights in this folder; waits until no request is in flight. Raises EngineError."""
        self.context_tokens = None
        answer = await self._ask({"op": "load", "weights": str(weights)})
        self.context_tokens = answer["context_tokens"]

    async def close(self) -> None:
        """End the child and everything in flight; may be called twice."""
        if self._writer is not None:
            self._writer.close()
        await self._process.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._fail("the engine was closed")
        if self._folder is not None:
            self._folder.cleanup()

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        if not self.is_alive:
            raise EngineError(f"the model server is not running; start the engine first ({self._process.last_words()})")
        number = next(self._ids)
        future = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"id": number, **request})
            answer: dict[str, Any] = await future
        except asyncio.CancelledError:
            with contextlib.suppress(EngineError):
                await self._send({"id": number, "op": "cancel"})
            raise
        finally:
            self._pending.pop(number, None)
        if not answer["ok"]:
            raise EngineError(f"the model server could not {request['op']}: {answer['error']}")
        return answer

    async def _send(self, message: dict[str, Any]) -> None:
        assert self._writer is not None
        try:
            self._writer.write(json.dumps(message).encode() + b"\n")
            await self._writer.drain()
        except ConnectionError as error:
            raise EngineError(f"the model server has gone: {self._process.last_words()}") from error

    async def _read_answers(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                answer = json.loads(line)
                future = self._pending.get(answer["id"])
                if future is not None and not future.done():
                    future.set_result(answer)
        except (ConnectionError, ValueError) as error:
            self._fail(f"its answers cannot be read ({error})")
        if self._writer is not None:
            self._writer.close()
        await asyncio.sleep(0.1)  # its last words arrive on another pipe
        self._fail(f"it ended: {self._process.last_words()}")

    def _fail(self, reason: str) -> None:
        for future in self._pending.values():
            if not future.done():
                future.set_result({"ok": False, "error": reason})
