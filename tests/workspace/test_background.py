"""Background jobs of an episode and whoever measures: a job runs only while the lease is shared."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from cuda_agent.agent.feedback import SLICE_SECONDS, MeteredShell
from cuda_agent.sandbox.lease import Lease
from cuda_agent.sandbox.shell import Shell

COUNT = "while :; do echo >> n; sleep 0.01; done"


@pytest_asyncio.fixture
async def metered(tmp_path: Path) -> AsyncIterator[MeteredShell]:
    (tmp_path / "w").mkdir()
    async with MeteredShell(Shell(tmp_path / "w"), Lease(tmp_path / "lease")) as shell:
        yield shell


def size(folder: Path) -> int:
    path = folder / "w" / "n"
    return path.stat().st_size if path.exists() else 0


async def stands_still(folder: Path) -> bool:
    before = size(folder)
    await asyncio.sleep(0.25)
    return size(folder) == before


async def goes_on(folder: Path) -> bool:
    """Between two slices of the lease a job waits, on a busy host for long."""
    before = size(folder)
    for _ in range(100):
        if size(folder) > before:
            return True
        await asyncio.sleep(0.1)
    return False


async def test_jobs_stand_still_while_someone_measures_and_then_go_on(metered: MeteredShell, tmp_path: Path):
    await metered.start(COUNT)
    await asyncio.sleep(0.2)
    for _ in range(2):
        started = time.monotonic()
        async with Lease(tmp_path / "lease").exclusive():
            assert time.monotonic() - started < SLICE_SECONDS + 0.7
            assert size(tmp_path) > 0 and await stands_still(tmp_path)
        await asyncio.sleep(0.2)
        assert await goes_on(tmp_path)


async def test_what_a_command_leaves_behind_runs_only_beside_commands(metered: MeteredShell, tmp_path: Path):
    await metered.run(f"({COUNT}) & sleep 0.2")
    assert size(tmp_path) > 0 and await stands_still(tmp_path)
    before = size(tmp_path)
    await metered.run("sleep 0.3")
    assert size(tmp_path) > before


async def test_a_job_goes_on_after_a_command_that_timed_out(metered: MeteredShell, tmp_path: Path):
    job = await metered.start(COUNT)
    result = await metered.run("sleep 60", 0.5)
    assert result.timed_out and "stopped after 0.5 s" in result.output
    assert (await metered.look(job)).state == "running" and await goes_on(tmp_path)
    assert (await metered.kill(job)).state == "killed"
    assert (await metered.run("echo on")).output == "on\n"


async def test_the_lease_is_free_once_the_last_job_has_ended(metered: MeteredShell, tmp_path: Path):
    job = await metered.start("true")
    await asyncio.sleep(SLICE_SECONDS + 0.3)
    assert (await metered.look(job)).exit_code == 0
    started = time.monotonic()
    async with Lease(tmp_path / "lease").exclusive():
        assert time.monotonic() - started < 0.3


async def test_a_pause_stops_jobs_too(metered: MeteredShell, tmp_path: Path):
    await metered.start(COUNT)
    command = asyncio.create_task(metered.run("sleep 1; echo done"))
    await asyncio.sleep(0.3)
    async with metered.paused():
        assert await stands_still(tmp_path)
        async with Lease(tmp_path / "lease").exclusive():
            assert await stands_still(tmp_path)
    assert (await command).output == "done\n"


async def test_closing_ends_jobs_and_lets_the_lease_go(metered: MeteredShell, tmp_path: Path):
    await metered.start(COUNT)
    await metered.close()
    async with asyncio.timeout(1.0), Lease(tmp_path / "lease").exclusive():
        assert await stands_still(tmp_path)


async def test_a_command_that_comes_during_a_pause_waits_for_its_end(metered: MeteredShell, tmp_path: Path):
    await metered.start(COUNT)
    async with metered.paused():
        command = asyncio.create_task(metered.run("echo on", 5.0))
        async with asyncio.timeout(3.0), Lease(tmp_path / "lease").exclusive():
            assert await stands_still(tmp_path) and not command.done()
    assert (await command).output == "on\n"
