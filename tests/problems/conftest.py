"""One fork server for all tests that run candidates: warming inductor costs seconds, forking does not."""

from collections.abc import AsyncIterator

import pytest_asyncio

from cuda_agent.judge.inductor import warm_server
from cuda_agent.sandbox.forkserver import ForkServer
from cuda_agent.store.session import cache_folder


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def warm() -> AsyncIterator[ForkServer]:
    """A started fork server."""
    server = await warm_server(cache_folder())
    yield server
    await server.close()
