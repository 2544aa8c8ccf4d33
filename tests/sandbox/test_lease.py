"""Sharing, excluding and fairness, within a process and across processes."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from cuda_agent.sandbox.lease import Lease

HOLD = """
import sys, time
from pathlib import Path
from cuda_agent.sandbox.lease import Lease
with getattr(Lease(Path(sys.argv[1])), sys.argv[2])():
    print("held", flush=True)
    time.sleep(float(sys.argv[3]))
"""


def _holder(path: Path, mode: str, seconds: float) -> subprocess.Popen[str]:
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), mode, str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={"PYTHONPATH": str(root)},
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


async def test_sharers_overlap_and_the_exclusive_one_is_alone(tmp_path: Path) -> None:
    lease = Lease(tmp_path / "cores")
    inside: list[str] = []

    async def share(name: str) -> None:
        async with lease.shared():
            inside.append(name)
            await asyncio.sleep(0.05)
            assert "x" not in inside
            inside.remove(name)

    async def alone() -> None:
        async with lease.exclusive():
            assert inside == []
            inside.append("x")
            await asyncio.sleep(0.05)
            inside.remove("x")

    start = time.monotonic()
    await asyncio.gather(share("a"), share("b"), share("c"), alone(), share("d"))
    assert time.monotonic() - start < 0.6


async def test_exclusive_is_not_starved_by_a_stream_of_sharers(tmp_path: Path) -> None:
    lease, stop = Lease(tmp_path / "cores"), False

    async def stream() -> None:
        while not stop:
            async with lease.shared():
                await asyncio.sleep(0.03)

    streams = [asyncio.create_task(stream()) for _ in range(4)]
    await asyncio.sleep(0.05)
    start = time.monotonic()
    async with asyncio.timeout(2.0), lease.exclusive():
        waited = time.monotonic() - start
    stop = True
    await asyncio.gather(*streams)
    assert waited < 1.0


async def test_lease_holds_across_processes_and_falls_with_them(tmp_path: Path) -> None:
    path = tmp_path / "cores"
    holder = _holder(path, "exclusive_sync", 60)
    lease = Lease(path)
    try:
        async with asyncio.timeout(0.1), lease.shared():
            raise AssertionError("shared beside an exclusive holder")
    except TimeoutError:
        pass
    holder.kill()
    holder.wait()
    async with asyncio.timeout(1.0), lease.exclusive():
        pass


async def test_sharers_of_two_processes_overlap(tmp_path: Path) -> None:
    holder = _holder(tmp_path / "cores", "shared_sync", 60)
    async with asyncio.timeout(1.0), Lease(tmp_path / "cores").shared():
        pass
    holder.kill()
    holder.wait()


async def test_cancelled_waiter_leaves_nothing_behind(tmp_path: Path) -> None:
    lease = Lease(tmp_path / "cores")
    async with lease.shared():
        waiter = asyncio.create_task(lease.exclusive().__aenter__())
        await asyncio.sleep(0.03)
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
        async with asyncio.timeout(0.5), lease.shared():
            pass
