"""What a process that plays episodes keeps open between batches: fork servers, judge pools, the engine, chat renderers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import UUID

from cuda_agent.agent.chat import ChatRenderer
from cuda_agent.config import Backend, JudgeConfig, RolloutScience, VllmExecution
from cuda_agent.engines.base import TextEngine, TokenEngine
from cuda_agent.engines.openai import Endpoint
from cuda_agent.engines.teacher import Teacher
from cuda_agent.engines.transformers import TransformersEngine
from cuda_agent.engines.vllm import VllmEngine, vllm_python
from cuda_agent.errors import ConfigError
from cuda_agent.judge.inductor import warm_server
from cuda_agent.judge.pool import JudgePool
from cuda_agent.judge.stored import VerdictCache
from cuda_agent.sandbox.forkserver import ForkServer
from cuda_agent.sandbox.lease import Lease, device_lease_path
from cuda_agent.store.session import Store
from cuda_agent.store.versions import policy_folder


class Services:
    """Opened lazily, closed together."""

    def __init__(self, store: Store, cache_dir: Path, endpoint: Endpoint | None = None) -> None:
        """Prepare; `endpoint` is where engine `openai` asks (default: the one that the environment names)."""
        self.store = store
        self.cache_dir = cache_dir
        self._lease_path = device_lease_path(cache_dir)
        self.lease = Lease(self._lease_path)
        self._exit = AsyncExitStack()
        self._endpoint = endpoint
        self._servers: dict[tuple[int, Backend], ForkServer] = {}
        self._judges: dict[str, JudgePool] = {}
        self._engines: dict[str, TransformersEngine | VllmEngine] = {}
        self._renderers: dict[UUID, ChatRenderer] = {}
        self._loaded: dict[str, UUID] = {}
        self._lock = asyncio.Lock()

    async def fork_server(self, threads: int, backend: Backend = "cpu") -> ForkServer:
        """The warm fork server that vetting and judging with this many threads share, started on first use."""
        async with self._lock:
            return await self._fork_server(threads, backend)

    async def _fork_server(self, threads: int, backend: Backend) -> ForkServer:
        if (threads, backend) not in self._servers:
            server = await warm_server(self.cache_dir, threads, backend)
            self._exit.push_async_callback(server.close)
            self._servers[threads, backend] = server
        return self._servers[threads, backend]

    async def judge(self, config: JudgeConfig) -> JudgePool:
        """The judge pool for these settings, started on first use."""
        async with self._lock:
            key = config.model_dump_json()
            if key not in self._judges:
                cache = VerdictCache(self.store)
                server = await self._fork_server(config.threads, config.backend)
                pool = JudgePool(config, cache_dir=self.cache_dir, server=server, lease=self.lease, lookup=cache.lookup)
                self._judges[key] = await self._exit.enter_async_context(pool)
            return self._judges[key]

    def endpoint(self) -> Endpoint:
        """Where engine `openai` asks.

        Raises:
            ConfigError: it is named nowhere.
        """
        return self._endpoint or Endpoint.of()

    async def engine(self, science: RolloutScience, policy_id: UUID | None, vllm: VllmExecution) -> TokenEngine | TextEngine:
        """The engine that these settings name, with the policy loaded. Call it only while no episode is in flight.

        An engine's first use settles how it serves: `vllm` says nothing to one that runs. One that has ended is replaced.

        Raises:
            ConfigError: this process cannot provide that engine.
            EngineError: it did not start or could not load the policy.
        """
        if science.engine == "teacher":
            return Teacher()
        if science.engine == "openai":
            client = self.endpoint().engine(science.sampling, science.episode.turn_tokens)
            return await self._exit.enter_async_context(client)
        if policy_id is None:
            raise ConfigError(f"engine {science.engine!r} needs a policy version; give policy_version_id")
        async with self._lock:
            name = science.engine
            if name in self._engines and not self._engines[name].is_alive:
                self._loaded.pop(name, None)
                await self._engines.pop(name).close()
            if name not in self._engines:
                made = self._transformers() if name == "transformers" else self._vllm(vllm)
                self._engines[name] = await self._exit.enter_async_context(made)
            if self._loaded.get(name) != policy_id:
                self._loaded.pop(name, None)
                await self._engines[name].load_policy(await asyncio.to_thread(policy_folder, self.store, policy_id))
                self._loaded[name] = policy_id
            return self._engines[name]

    def _transformers(self) -> TransformersEngine:
        return TransformersEngine(lease_path=self._lease_path)

    def _vllm(self, settings: VllmExecution) -> VllmEngine:
        return VllmEngine(vllm_python(), settings, lease_path=self._lease_path)

    def renderer(self, policy_id: UUID) -> ChatRenderer:
        """The chat renderer of a policy's tokenizer and template."""
        if policy_id not in self._renderers:
            self._renderers[policy_id] = ChatRenderer(policy_folder(self.store, policy_id))
        return self._renderers[policy_id]

    async def close(self) -> None:
        """Stop every child process."""
        await self._exit.aclose()
