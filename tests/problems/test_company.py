"""Sharing a GPU: memory by size and in order, quiet by stopping real children. Neither needs a GPU to be seen."""

import asyncio
import time

import pytest

from cuda_agent.judge.device import CONTEXT
from cuda_agent.problems.company import STRUCTURE, Company, needed
from cuda_agent.sandbox.forkserver import Child, ForkServer
from cuda_agent.sandbox.limits import Limits
from tests.sandbox.helpers import BINDS, HELPERS

GB = 2**30
ALL = 2**63  # bytes: more than there are


def company(workers: int = 4) -> Company:
    """With 40 GB to share out, 10 for each of four workers."""
    return Company(free=40 * GB + workers * CONTEXT, total=80 * GB, workers=workers)


async def held(company: Company, size: int, entered: list[int], leave: asyncio.Event) -> None:
    async with company.room(size):
        entered.append(size)
        await leave.wait()


async def test_a_share_is_what_is_needed_but_no_less_than_an_equal_one_and_no_more_than_all() -> None:
    shared = company()
    for size, share in ((0, 1 / 8), (20 * GB, 1 / 4), (ALL, 1 / 2)):
        async with shared.room(size) as found:
            assert found.size == max(10 * GB, min(size, 40 * GB))
            assert found.share == pytest.approx(share) and found.is_all == (size == ALL)


async def test_who_wants_much_waits_for_room_and_is_not_passed() -> None:
    shared, entered = company(), list[int]()
    leaving = [asyncio.Event() for _ in range(4)]
    sizes = (10 * GB, 25 * GB, 30 * GB, 1)
    tasks = [asyncio.create_task(held(shared, size, entered, leave)) for size, leave in zip(sizes, leaving, strict=True)]
    await asyncio.sleep(0.05)
    assert entered == [10 * GB, 25 * GB]  # the last one would fit
    leaving[1].set()
    await asyncio.sleep(0.05)
    assert entered == [10 * GB, 25 * GB, 30 * GB]
    leaving[0].set()
    await asyncio.sleep(0.05)
    assert entered == list(sizes)
    for leave in leaving:
        leave.set()
    await asyncio.gather(*tasks)


async def test_who_gives_up_waiting_keeps_no_room() -> None:
    shared, entered, leave = company(), list[int](), asyncio.Event()
    first = asyncio.create_task(held(shared, ALL, entered, leave))
    await asyncio.sleep(0.01)
    second = asyncio.create_task(held(shared, ALL, entered, leave))
    await asyncio.sleep(0.01)
    second.cancel()
    leave.set()
    await first
    async with asyncio.timeout(1), shared.room(ALL):
        assert entered == [ALL]


def test_a_problem_is_believed_only_the_form_of_its_sizes() -> None:
    assert needed({"meta_bytes": [10, 1, 100]}) == 60 + 6 + 400 + STRUCTURE
    assert needed({"meta_bytes": [1, 10, 100]}) == 4 + 80 + 400 + STRUCTURE
    for told in ({}, {"meta_bytes": [1, 2]}, {"meta_bytes": "many"}, {"meta_bytes": [1, 2, 3.5]}):
        assert needed(told) == 0


async def test_while_it_is_quiet_running_children_stand_still_and_none_begins() -> None:
    shared = company()
    async with ForkServer() as server:
        child = await server.open(f"{HELPERS}:Clock", {}, Limits(wall_seconds=30.0), BINDS)

        async def run(seconds: float) -> float:
            async with shared.running(child):
                longest: float = await child.call("longest_pause", {"seconds": seconds}, 20.0)
            return longest

        undisturbed = await run(0.3)
        running = asyncio.create_task(run(1.0))
        await asyncio.sleep(0.3)
        async with shared.quiet():
            began = time.monotonic()
            late = asyncio.create_task(held_off(shared, child, began))
            await asyncio.sleep(0.5)
        assert await running > 0.4 > undisturbed
        assert await late >= 0.4
        await child.close()


class Stopped:
    """Counts what happens to a child, which takes its time to stop."""

    def __init__(self) -> None:
        self.frozen = 0

    def freeze(self) -> None:
        time.sleep(0.05)
        self.frozen += 1

    def thaw(self) -> None:
        self.frozen -= 1


async def test_who_gives_up_quiet_leaves_no_child_stopped() -> None:
    shared, children = company(), [Stopped() for _ in range(3)]
    shared._running = set(children)  # type: ignore[arg-type]

    async def measure() -> None:
        async with shared.quiet():
            await asyncio.sleep(10)

    for patience in (0.01, 0.5):  # while they are being stopped, and afterwards
        measuring = asyncio.create_task(measure())
        await asyncio.sleep(patience)
        measuring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await measuring
        assert [child.frozen for child in children] == [0, 0, 0]
    async with asyncio.timeout(1), shared.quiet():
        assert [child.frozen for child in children] == [1, 1, 1]


async def held_off(shared: Company, child: Child, began: float) -> float:
    async with shared.running(child):
        return time.monotonic() - began
