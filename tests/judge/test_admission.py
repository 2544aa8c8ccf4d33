"""Who may take memory of the device, and when others go on."""

import asyncio

import pytest

from cuda_agent.judge.admission import RESERVE, Admission

pytestmark = pytest.mark.asyncio
GIB = 2**30


async def test_one_after_another_when_there_is_room_for_one_only() -> None:
    free = RESERVE + 3 * GIB
    admission, order = Admission(lambda: free), list[str]()

    async def stay(name: str) -> None:
        async with admission.admitted(2 * GIB):
            order.append(f"{name} in")
            await asyncio.sleep(0.02)
            order.append(f"{name} out")

    await asyncio.gather(stay("a"), stay("b"), stay("c"))
    assert order == ["a in", "a out", "b in", "b out", "c in", "c out"]


async def test_memory_counts_once_it_is_promised_and_once_it_is_taken() -> None:
    free = RESERVE + 5 * GIB
    admission = Admission(lambda: free)
    async with admission.admitted(2 * GIB) as arrived:
        async with admission.admitted(2 * GIB):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(admission.admitted(2 * GIB).__aenter__(), 0.1)
        free -= 2 * GIB  # the first one took it
        arrived()
        async with admission.admitted(2 * GIB):
            pass


async def test_whoever_is_alone_never_waits() -> None:
    admission = Admission(lambda: 0)
    for _ in range(2):
        async with admission.admitted(2 * GIB):
            pass


async def test_a_cancelled_waiter_leaves_nothing_behind() -> None:
    admission = Admission(lambda: RESERVE)
    async with admission.admitted(GIB):
        waiting = asyncio.ensure_future(admission.admitted(GIB).__aenter__())
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with asyncio.timeout(1.0), admission.admitted(GIB):
        pass
