"""A running fork server for each test."""

from collections.abc import AsyncIterator

import pytest_asyncio

from cuda_agent.sandbox.forkserver import ForkServer


@pytest_asyncio.fixture
async def server() -> AsyncIterator[ForkServer]:
    """Without preloaded modules."""
    async with ForkServer() as running:
        yield running
