"""The services of a flow's process, shared by nested stages.

Nested `services()` blocks share what the outermost one opened, so that a campaign in one process starts its engine and
its judge once, while a stage run alone from the dashboard opens and closes its own. Everything is closed by the
outermost block, whatever happens inside.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cuda_agent.agent.services import Services
from cuda_agent.errors import ConfigError
from cuda_agent.store.session import cache_folder, open_store

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
