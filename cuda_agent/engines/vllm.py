"""The token engine that samples from a vLLM server, started here and reached over a unix socket only its user can open.

vLLM lives in a Python environment of its own (`vllm_python`); this process imports nothing of it. One policy at a time:
`load_policy` waits until no request is in flight, reads the new weights in place of the old ones and empties the prefix
cache; the server is started anew only for a model of another shape. With a lease, generation stands still while another
holds it alone. The log-probs are those of the full vocabulary at temperature 1, whatever the sampling temperature.
"""

import asyncio
import contextlib
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx

from cuda_agent.config import VLLM_PYTHON_VARIABLE, VllmExecution
from cuda_agent.engines import supervise
from cuda_agent.engines.base import Generation, Sampling
from cuda_agent.engines.in_vllm import policy_switch
from cuda_agent.engines.process import EngineProcess
from cuda_agent.errors import ConfigError, EngineError
from cuda_agent.sandbox.lease import Lease

SERVED = "policy"  # the model's name in requests
_LOOK_SECONDS = 0.02  # between two looks at who wants the lease
_HEALTH_SECONDS = 0.5
_RELOAD_SECONDS = 600.0
_MOST_SEED = 2**63


def vllm_python(environment: Mapping[str, str] | None = None) -> str:
    """The Python that has vLLM: the one that CUDA_AGENT_VLLM_PYTHON names, else this one.

    Raises:
        ConfigError: the named one does not exist, or none is named and this one has no vLLM.
    """
    named = (os.environ if environment is None else environment).get(VLLM_PYTHON_VARIABLE)
    if named:
        if not os.access(named, os.X_OK):
            raise ConfigError(f"{VLLM_PYTHON_VARIABLE} names {named}, which cannot be run; name the python of vLLM's environment")
        return named
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "engine vllm needs vLLM, in an environment of its own: python3 -m venv vllm-env && vllm-env/bin/pip install vllm, "
            f"then set {VLLM_PYTHON_VARIABLE}=vllm-env/bin/python"
        )
    return sys.executable


class VllmEngine:
    """Client and supervisor of one vLLM server; use `async with`, then `load_policy` before the first request."""

    def __init__(
        self,
        python: str,
        settings: VllmExecution | None = None,
        *,
        lease_path: Path | None = None,
        on_output: Callable[[str], None] | None = None,
    ) -> None:
        """Describe the server.

        Args:
            python: interpreter with vLLM.
            settings: the server's.
            lease_path: lease file; its shared side is held while anything is generated.
            on_output: gets each line that the server writes.
        """
        self.context_tokens: int | None = None  # of the policy loaded
        self._python, self._settings, self._on_output = python, settings or VllmExecution(), on_output
        self._lease = Lease(lease_path) if lease_path else None
        self._process: EngineProcess | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._client: httpx.AsyncClient | None = None
        self._gate: asyncio.Task[None] | None = None
        self._shape: dict[str, Any] | None = None  # config.json of the model that the server was started with
        self._ends: list[int] = []
        self._flying, self._loading = 0, False
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        """Nothing to start: the server starts with its first policy."""
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Generation:
        """Sample one answer; cancelling the awaiting task ends the request in the server. Raises EngineError."""
        async with self._in_flight():
            if self.context_tokens is None:
                raise EngineError("no policy is loaded; load one before the first request")
            room = self.context_tokens - len(prompt_ids)
            if not prompt_ids or room < 1:
                raise EngineError(
                    f"a prompt of {len(prompt_ids)} tokens does not fit a context of {self.context_tokens}; shorten the episode"
                )
            started = time.monotonic()
            answer = await self._post("/v1/completions", self._request(prompt_ids, sampling, room))
            return read_generation(answer, time.monotonic() - started)

    def _request(self, prompt_ids: Sequence[int], sampling: Sampling, room: int) -> dict[str, Any]:
        return {
            "model": SERVED,
            "prompt": list(prompt_ids),
            "max_tokens": min(sampling.max_new_tokens, room),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "seed": sampling.seed % _MOST_SEED,
            "logprobs": 0,  # of the sampled token alone
            "return_token_ids": True,
            "ignore_eos": True,  # the policy's own end-of-turn tokens count, not what a tokenizer's file says
            "stop_token_ids": self._ends,
            "skip_special_tokens": False,
        }

    @property
    def is_alive(self) -> bool:
        """Whether its server was started, by the first policy, and has not ended."""
        return self._process is not None and self._process.is_alive

    async def load_policy(self, weights: Path) -> None:
        """Serve the weights in this folder; waits until no request is in flight. Raises EngineError."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._flying and not self._loading)
            self._loading = True
        self.context_tokens = None
        try:
            async with self._lease.shared() if self._lease else contextlib.nullcontext():
                shape = _read_config(weights)
                if self.is_alive and shape == self._shape:
                    await self._reload(weights)
                else:
                    await self._start(weights, shape)
                self.context_tokens = await self._served_context()
        finally:
            async with self._changed:
                self._loading = False
                self._changed.notify_all()

    async def close(self) -> None:
        """End the server and everything in flight; may be called twice."""
        if self._gate is not None:
            self._gate.cancel()
            await asyncio.gather(self._gate, return_exceptions=True)
        self.context_tokens = self._gate = None
        if self._process is not None:
            await self._process.close()
        if self._client is not None:
            await self._client.aclose()
        if self._folder is not None:
            self._folder.cleanup()

    # --- the server -------------------------------------------------------------------------------------------------

    async def _start(self, weights: Path, shape: dict[str, Any]) -> None:
        await self.close()
        self._folder = tempfile.TemporaryDirectory(prefix="cuda-agent-vllm-")  # of this user alone
        socket = Path(self._folder.name) / "vllm.sock"
        self._process = EngineProcess(self._on_output)
        transport = httpx.AsyncHTTPTransport(uds=str(socket), limits=httpx.Limits(max_connections=None))
        timeout = httpx.Timeout(None, connect=30.0)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://vllm", timeout=timeout)
        try:
            await self._process.start(self._command(weights, socket), _environment())
            await self._wait_until_healthy()
        except BaseException:
            await self.close()
            raise
        self._shape, self._ends = shape, _end_tokens(shape)
        if self._lease is not None:
            await self._post("/pause", params={"mode": "keep"})
            self._gate = asyncio.create_task(self._take_turns(self._lease))

    def _command(self, weights: Path, socket: Path) -> list[str]:
        chosen = self._settings
        command = [sys.executable, supervise.__file__, self._python, "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--model", str(weights), "--served-model-name", SERVED, "--uds", str(socket), "--dtype", chosen.dtype]
        command += ["--generation-config", "vllm", "--logprobs-mode", "raw_logprobs", "--uvicorn-log-level", "warning"]
        command += [
            "--worker-extension-cls",
            f"{policy_switch.__name__.rpartition('.')[2]}.{policy_switch.PolicySwitch.__name__}",
        ]
        command += ["--gpu-memory-utilization", str(chosen.memory_share), "--max-num-seqs", str(chosen.sequences)]
        command += ["--tensor-parallel-size", str(chosen.tensor_parallel)]
        command += ["--max-model-len", str(chosen.context_tokens)] if chosen.context_tokens else []
        return [*command, *(["--enforce-eager"] if chosen.enforce_eager else []), *chosen.arguments]

    async def _wait_until_healthy(self) -> None:
        assert self._process is not None and self._client is not None
        deadline = time.monotonic() + self._settings.start_seconds
        while self._process.is_alive:
            with contextlib.suppress(httpx.HTTPError):
                if (await self._client.get("/health", timeout=5.0)).status_code == httpx.codes.OK:
                    return
            if time.monotonic() > deadline:
                words, limit = self._process.last_words(), self._settings.start_seconds
                raise EngineError(f"vLLM was not ready within {limit:g} s ({words}); raise start_seconds")
            await asyncio.sleep(_HEALTH_SECONDS)
        await self._process.ended()
        raise EngineError(f"vLLM could not start: {self._process.last_words()}")

    async def _reload(self, weights: Path) -> None:
        call = {"method": "switch_policy", "args": [str(weights)]}
        await self._post("/collective_rpc", call, timeout=_RELOAD_SECONDS)
        await self._post("/reset_prefix_cache")

    async def _served_context(self) -> int:
        assert self._client is not None
        try:
            answer = await self._client.get("/v1/models")
            return int(answer.json()["data"][0]["max_model_len"])
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            raise EngineError(f"vLLM does not say how long a context it serves ({type(error).__name__})") from error

    async def _post(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        params: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Any:
        """The answer's JSON, or None if it has none. Raises EngineError."""
        assert self._client is not None and self._process is not None
        try:
            answer = await self._client.post(path, json=body, params=params, timeout=httpx.Timeout(timeout, connect=30.0))
        except httpx.HTTPError as error:
            await asyncio.sleep(0.1)  # its last words arrive on another pipe
            raise EngineError(f"vLLM has gone ({type(error).__name__}): {self._process.last_words()}") from error
        if answer.status_code != httpx.codes.OK:
            raise EngineError(f"vLLM refused {path} with status {answer.status_code}: {answer.text[:300]}")
        if not answer.content:
            return None
        try:
            return answer.json()
        except ValueError as error:
            raise EngineError(f"vLLM answered {path} with something that is not JSON: {answer.text[:100]!r}") from error

    # --- requests and turns -----------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _in_flight(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._loading)
            self._flying += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            self._flying -= 1
            async with self._changed:
                self._changed.notify_all()

    async def _take_turns(self, lease: Lease) -> None:
        """The server stands still except while this holds the lease: from the first request until the last one is answered,
        with a rest whenever another waits for the lease. What it has begun goes on afterwards.
        """
        try:
            while True:
                async with self._changed:
                    await self._changed.wait_for(lambda: self._flying > 0)
                async with lease.shared():
                    await self._post("/resume")
                    looks = 0  # a sharer passes the turnstile in no time: only who is seen twice waits
                    while self._flying and looks < 2:
                        await asyncio.sleep(_LOOK_SECONDS)
                        looks = looks + 1 if lease.is_wanted() else 0
                    await self._post("/pause", params={"mode": "keep"})
        except EngineError:
            assert self._process is not None
            await self._process.close()  # a server that neither rests nor goes on is of no use; requests fail with it
            raise


def read_generation(answer: Any, seconds: float) -> Generation:
    """A completion of vLLM's with token ids and log-probs. Raises EngineError."""
    try:
        (choice,) = answer["choices"]
        ids, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
        finish = choice["finish_reason"]
        if finish not in ("stop", "length"):
            raise EngineError(f"vLLM ended an answer with {finish!r}")
        if len(ids) != len(logprobs):
            raise EngineError(f"vLLM gave {len(ids)} tokens and {len(logprobs)} log-probs")
        return Generation(tuple(map(int, ids)), tuple(map(float, logprobs)), finish, seconds)
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(f"vLLM answered without tokens and log-probs ({type(error).__name__}: {error})") from error


def _read_config(weights: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((weights / "config.json").read_text())
        return found
    except (OSError, ValueError) as error:
        raise EngineError(f"{weights} holds no model: its config.json cannot be read ({type(error).__name__})") from error


def _end_tokens(config: Mapping[str, Any]) -> list[int]:
    end = config.get("eos_token_id")
    return [int(token) for token in (end if isinstance(end, list) else [end]) if token is not None]


def _environment() -> dict[str, str]:
    """Of the server: its own packages and our part of its workers, no network, the endpoints that pause it and load weights."""
    own = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONHOME")}
    own |= {"PYTHONPATH": str(Path(policy_switch.__file__).parent)}
    own |= {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    own.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    return own
