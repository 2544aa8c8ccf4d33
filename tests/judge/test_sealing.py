"""What a candidate's process cannot do after the seal, and that the judge sees a seal that was not done."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from cuda_agent.judge import glue, inductor
from cuda_agent.judge.sealing import Seal
from cuda_agent.sandbox.forkserver import Child, ChildFailed, ForkServer
from cuda_agent.sandbox.limits import Bind, Limits
from cuda_agent.store.session import cache_folder

pytestmark = pytest.mark.asyncio(loop_scope="module")
HELPERS = "tests.judge.sealed"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[ForkServer]:
    running = await inductor.warm_server(cache_folder(), 1)
    yield running
    await running.close()


@pytest_asyncio.fixture(loop_scope="module")
async def child(server: ForkServer) -> AsyncIterator[Child]:
    folder = Path(glue.prepare(cache_folder()).folder)
    binds = (Bind.of(folder), Bind.of(Path(__file__).parents[1]))
    opened = await server.open(f"{HELPERS}:open_sealed", {"seal": str(folder / glue.SEAL_MODULE)}, Limits(memory_mb=2_000), binds)
    yield opened
    await opened.close()


async def looked_at(child: Child, seal: Seal) -> str:
    child.freeze()
    try:
        return await asyncio.to_thread(seal.fault, child, is_gpu=False)
    finally:
        child.thaw()


async def test_seal_is_seen_from_outside_once_it_is_done(child: Child) -> None:
    seal = Seal.of(child.filters(), *await child.call("facts", {}, 30))
    assert len(seal.entries) > 1_000 and seal.code
    assert "torch's operators" in await looked_at(child, seal)
    await child.call("seal", {}, 30)
    assert await looked_at(child, seal) == ""


async def test_each_part_that_is_missing_is_named(child: Child) -> None:
    seal = Seal.of(child.filters(), *await child.call("facts", {}, 30))
    await child.call("seal", {}, 30)
    own = await child.call("own_code", {}, 30)
    assert "another library" in await looked_at(child, replace(seal, code=(*seal.code, tuple(own))))
    assert "new code" in await looked_at(child, replace(seal, filters=seal.filters + 1))
    assert "torch's operators" in await looked_at(child, replace(seal, pattern=b"\0" * len(seal.pattern)))


async def test_python_is_refused_this_process_under_any_name(child: Child) -> None:
    await child.call("refuse", {}, 30)
    assert await child.call("attempt", {"what": "opens"}, 30) == "OK"
    assert "told already" in await child.call("attempt", {"what": "tells_again"}, 30)
    with pytest.raises(ChildFailed, match="refused already"):
        await child.call("refuse", {}, 30)


@pytest.mark.parametrize(
    ("what", "refusal"),
    [
        ("multiplies", "forbidden operator"),
        ("maps_code", "OK"),
        ("makes_code", "OK"),
        ("allocates", "OK"),
        ("copies", "OK"),
        ("starts_threads", "OK"),
    ],
)
async def test_what_a_sealed_process_can_and_cannot_do(child: Child, what: str, refusal: str) -> None:
    await child.call("seal", {}, 30)
    assert refusal in await child.call("attempt", {"what": what}, 30)
