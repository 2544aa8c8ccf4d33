"""Serves one policy's token ids over a unix socket: the child process behind `TransformersEngine`.

Protocol: one JSON object a line. A request is {"id", "op", ...} with op generate | cancel | load; an answer is {"id",
"ok": true, ...} or {"id", "ok": false, "error"}. Sequences of all connections share one decode loop. A load waits until
nothing is in flight and lets nothing new start meanwhile. The process ends when its standard input closes, so it never
outlives the task that started it.
"""

import argparse
import asyncio
import contextlib
import gc
import itertools
import json
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from cuda_agent.engines.base import Generation, Sampling
from cuda_agent.engines.decoding import Decoder
from cuda_agent.errors import EngineError
from cuda_agent.sandbox.lease import Lease

Gate = Callable[[], AbstractContextManager[None]]  # held during each decode step
LINE_LIMIT = 64 * 2**20  # bytes of one request or answer: a prompt of a million tokens


def open_model(weights: Path, device: str, dtype: str) -> Any:
    """Load a causal LM from a local folder onto a device."""
    model: Any = AutoModelForCausalLM.from_pretrained(weights, dtype=getattr(torch, dtype), local_files_only=True)
    return model.to(device)


def stop_ids(model: Any) -> frozenset[int]:
    """End-of-turn ids: the model config's `eos_token_id`, which may be one id or several."""
    eos = model.config.eos_token_id
    return frozenset() if eos is None else frozenset([eos] if isinstance(eos, int) else eos)


class Server:
    """The decode loop and the connections that feed it; everything runs on one event loop."""

    def __init__(self, load: Callable[[Path], Decoder], gate: Gate) -> None:
        self._load = load
        self._gate = gate
        self._decoder: Decoder | None = None
        self._answers: dict[int, asyncio.Future[Generation]] = {}
        self._keys = itertools.count()
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._starting = asyncio.Lock()  # held during a load, and for a moment by each request that starts

    async def load(self, weights: Path) -> int:
        """Wait until nothing is in flight, then serve these weights; returns the context length in tokens.

        The old model and what was kept of its answers are freed first: two would not always fit. When the new one does not
        load, none is served.
        """
        async with self._starting:
            await self._idle.wait()
            self._decoder = None
            gc.collect()
            with self._gate():
                try:
                    self._decoder = self._load(weights)
                except Exception as error:  # boundary: a broken checkpoint fails in any of several libraries, in its own way
                    raise EngineError(f"{weights} does not load as a causal LM: {error}") from error
            return self._decoder.context

    async def generate(self, prompt: list[int], sampling: Sampling) -> Generation:
        """Sample one answer; dropped when the awaiting task is cancelled.

        Raises:
            EngineError: no policy is loaded, or decoding failed.
            ValueError: the prompt does not fit.
        """
        async with self._starting:
            if self._decoder is None:
                raise EngineError("no policy is loaded; load one first")
            decoder, key = self._decoder, next(self._keys)
            decoder.add(key, prompt, sampling)
            answer = self._answers[key] = asyncio.get_running_loop().create_future()
            self._idle.clear()
            self._work.set()
        try:
            generation: Generation = await answer
            return generation
        finally:
            if self._answers.pop(key, None) is not None:
                decoder.cancel(key)
                self._rest()

    async def decode_forever(self) -> None:
        """Step whenever there are sequences; between steps the event loop reads requests, which join at the next."""
        while True:
            await self._work.wait()
            self._step()
            self._rest()
            await asyncio.sleep(0)

    def _step(self) -> None:
        assert self._decoder is not None
        try:
            with self._gate():
                finished = self._decoder.step()
        except RuntimeError as error:  # torch's errors, out of memory included: they end what is in flight, not the server
            self._fail(str(error))
            return
        for one in finished:
            answer = self._answers.pop(one.key)
            if not answer.done():  # it may have been cancelled in this very turn of the event loop
                answer.set_result(one.generation)

    def _fail(self, reason: str) -> None:
        assert self._decoder is not None
        self._decoder.clear()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(EngineError(f"decoding failed: {reason}"))
        self._answers.clear()

    def _rest(self) -> None:
        if not self._answers:
            self._work.clear()
            self._idle.set()

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until it hangs up; what it still has in flight is dropped then."""
        tasks: dict[Any, asyncio.Task[None]] = {}
        try:
            while line := await reader.readline():
                request = json.loads(line)
                if request["op"] == "cancel":
                    if request["id"] in tasks:
                        tasks[request["id"]].cancel()
                    continue
                task = asyncio.create_task(self._answer(request, writer))
                tasks[request["id"]] = task
                task.add_done_callback(partial(_forget, tasks, request["id"]))
        finally:
            for task in list(tasks.values()):
                task.cancel()
            writer.close()

    async def _answer(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        try:
            result = await self._perform(request)
        except (EngineError, ValueError, OSError, RuntimeError) as error:
            result = {"ok": False, "error": str(error)}
        writer.write(json.dumps({"id": request["id"], **result}).encode() + b"\n")
        with contextlib.suppress(ConnectionError):
            await writer.drain()

    async def _perform(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["op"] == "load":
            return {"ok": True, "context_tokens": await self.load(Path(request["weights"]))}
        if request["op"] == "generate":
            return {"ok": True, **asdict(await self.generate(request["prompt"], Sampling(**request["sampling"])))}
        return {"ok": False, "error": f"unknown operation {request['op']!r}"}


def _forget(tasks: dict[Any, asyncio.Task[None]], name: Any, _: object) -> None:
    tasks.pop(name, None)


async def _stdin_closed() -> None:
    """Wait for the end of standard input: the parent is gone or wants this process to end."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(4096):
        pass


async def serve(socket: Path, load: Callable[[Path], Decoder], gate: Gate) -> None:
    """Listen, say "ready" on standard output, and serve until standard input closes."""
    server = Server(load, gate)
    listener = await asyncio.start_unix_server(server.connection, path=str(socket), limit=LINE_LIMIT)
    print("ready", flush=True)
    decoding = asyncio.create_task(server.decode_forever())
    parent = asyncio.create_task(_stdin_closed())
    done, _ = await asyncio.wait({decoding, parent}, return_when=asyncio.FIRST_COMPLETED)
    listener.close()
    if decoding in done:
        decoding.result()
    os._exit(0)  # open connections and torch's threads need no farewell


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--rows", type=int, default=64, help="sequences decoded at once")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--lease", type=Path, help="lease file whose shared side is held during each step")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    def load(weights: Path) -> Decoder:
        model = open_model(weights, args.device, args.dtype)
        return Decoder(model, stop_ids=stop_ids(model), max_rows=args.rows)

    gate: Gate = Lease(args.lease).shared_sync if args.lease else contextlib.nullcontext
    asyncio.run(serve(args.socket, load, gate))


if __name__ == "__main__":
    main()
