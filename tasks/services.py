"""What a flow's process keeps open between stages: the store, one judge pool, the engines, the trainers.

Nested `services()` blocks share what the outermost one opened, so that a campaign in one process starts its engine and
its judge once, while a stage run alone from the dashboard opens and closes its own. Everything is closed by the
outermost block, whatever happens inside.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from uuid import UUID

from cuda_agent.agent.chat import ChatRenderer
from cuda_agent.config import JudgeConfig
from cuda_agent.engines.base import TextEngine, TokenEngine
from cuda_agent.engines.teacher import Teacher
from cuda_agent.engines.transformers import TransformersEngine
from cuda_agent.errors import ConfigError
from cuda_agent.judge.inductor import warm_server
from cuda_agent.judge.pool import JudgePool
from cuda_agent.sandbox.forkserver import ForkServer
from cuda_agent.sandbox.lease import Lease, device_lease_path
from cuda_agent.store.session import Store, cache_folder, open_store
from tasks.policies import policy_folder
from tasks.verdicts import VerdictCache


class Services:
    """Opened lazily, closed together."""

    def __init__(self, store: Store, cache_dir: Path) -> None:
        self.store = store
        self.cache_dir = cache_dir
        self._lease_path = device_lease_path(cache_dir)
        self.lease = Lease(self._lease_path)
        self._exit = AsyncExitStack()
        self._servers: dict[int, ForkServer] = {}
        self._judges: dict[str, JudgePool] = {}
        self._engine: TransformersEngine | None = None
        self._renderers: dict[UUID, ChatRenderer] = {}
        self._loaded: UUID | None = None
        self._lock = asyncio.Lock()

    async def fork_server(self, threads: int) -> ForkServer:
        """The warm fork server that vetting and judging with this many threads share, started on first use."""
        async with self._lock:
            return await self._fork_server(threads)

    async def _fork_server(self, threads: int) -> ForkServer:
        if threads not in self._servers:
            server = await warm_server(self.cache_dir, threads)
            self._exit.push_async_callback(server.close)
            self._servers[threads] = server
        return self._servers[threads]

    async def judge(self, config: JudgeConfig) -> JudgePool:
        """The judge pool for these settings, started on first use."""
        async with self._lock:
            key = config.model_dump_json()
            if key not in self._judges:
                cache = VerdictCache(self.store)
                server = await self._fork_server(config.threads)
                pool = JudgePool(config, cache_dir=self.cache_dir, server=server, lease=self.lease, lookup=cache.lookup)
                self._judges[key] = await self._exit.enter_async_context(pool)
            return self._judges[key]

    async def engine(self, name: str, policy_id: UUID | None) -> TokenEngine | TextEngine:
        """The named engine with the policy loaded. Call it only while no episode is in flight.

        Raises:
            ConfigError: this process cannot provide that engine.
            EngineError: it did not start or could not load the policy.
        """
        if name == "teacher":
            return Teacher()
        if name != "transformers":
            raise ConfigError(f"engine {name!r} is not available to campaigns yet; use transformers or teacher")
        if policy_id is None:
            raise ConfigError("engine 'transformers' needs a policy version; give policy_version_id")
        async with self._lock:
            if self._engine is None:
                self._engine = await self._exit.enter_async_context(TransformersEngine(lease_path=self._lease_path))
            if self._loaded != policy_id:
                self._loaded = None
                await self._engine.load_policy(await asyncio.to_thread(policy_folder, self.store, policy_id))
                self._loaded = policy_id
            return self._engine

    def renderer(self, policy_id: UUID) -> ChatRenderer:
        """The chat renderer of a policy's tokenizer and template."""
        if policy_id not in self._renderers:
            self._renderers[policy_id] = ChatRenderer(policy_folder(self.store, policy_id))
        return self._renderers[policy_id]

    async def close(self) -> None:
        """Stop every child process."""
        await self._exit.aclose()


_current: Services | None = None


def current() -> Services:
    """The services of the enclosing `services()` block.

    Raises:
        ConfigError: a task was called outside any stage flow.
    """
    if _current is None:
        raise ConfigError("this task needs the services of a stage flow; call it from a flow in flows/")
    return _current


@asynccontextmanager
async def services() -> AsyncIterator[Services]:
    """Share the enclosing block's services, or open this process's own and close them at the end."""
    global _current
    if _current is not None:
        yield _current
        return
    store = open_store()
    opened = _current = Services(store, cache_folder())
    try:
        yield opened
    finally:
        _current = None
        await opened.close()
        store.close()
