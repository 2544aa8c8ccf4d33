"""Isolated children: what they may not do, and how their failures are reported."""

import asyncio
import functools
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cuda_agent.errors import SandboxError
from cuda_agent.sandbox.forkserver import ChildFailed, ForkServer
from cuda_agent.sandbox.limits import Bind, Limits
from cuda_agent.sandbox.view import PACKAGE
from tests.sandbox.helpers import BINDS, HELPERS

SHORT = Limits(wall_seconds=1.0, memory_mb=500, output_bytes=2**20, file_mb=16)


async def test_child_is_another_user_in_namespaces_of_its_own(server: ForkServer) -> None:
    seen = await server.run(f"{HELPERS}:look", {}, Limits(), BINDS)
    assert seen["pid"] == 2 and seen["processes"] == ["1", "2"]
    assert seen["tmp"] == []
    assert "NoNewPrivs:\t1" in seen["status"] and "CapEff:\t0000000000000000" in seen["status"]
    assert "CapBnd:\t0000000000000000" in seen["status"]
    assert not {"DATABASE_URL", "CUDA_AGENT_DATABASE_URL", "SSH_AUTH_SOCK"} & set(seen["environment"])
    if os.geteuid() == 0:
        other = await server.run(f"{HELPERS}:look", {}, Limits(), BINDS)
        assert len({0, seen["uid"], other["uid"]}) == 3


async def test_child_can_not_reach_out(server: ForkServer, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        payload = {"package": str(PACKAGE), "secret": str(secret), "port": listener.getsockname()[1], "host_pid": os.getpid()}
        results = await server.run(f"{HELPERS}:attempt", payload, Limits(), BINDS)
    if os.geteuid() != 0:  # in the user namespace it is uid 0 without capabilities, and the kernel ignores its signal to init
        del results["become_root"], results["kill_init"]
    assert "done" not in results.values(), results
    assert results["read_secret"] == "FileNotFoundError"
    assert not Path("/usr/evil").exists()


async def test_values_cross_as_json_and_raw_buffers(server: ForkServer) -> None:
    array = np.arange(300_000, dtype=np.float32).reshape(3, -1)
    result = await server.run(f"{HELPERS}:double", {"array": array, "bytes": b"\0x"}, Limits(), BINDS)
    assert np.array_equal(result["array"], array * 2) and result["bytes"] == b"\0x"
    assert result["nested"] == [1, None, {"x": 1.5}]


@pytest.mark.parametrize(
    ("way", "kind", "words"),
    [
        ("exit", "crash", "exit code 3"),
        ("segv", "crash", "SIGSEGV"),
        ("hang", "timeout", "1 s"),
        ("raise", "exception", "ValueError: no good"),
        ("memory", "oom", ""),
        ("flood", "exception", "PermissionError"),
        ("print", "exception", "ValueError: after all that"),
        ("garbage", "crash", "protocol"),
        ("big", "crash", "protocol"),
        ("close", "crash", ""),
    ],
)
async def test_failure_is_reported_and_hurts_nobody_else(server: ForkServer, way: str, kind: str, words: str) -> None:
    with pytest.raises(ChildFailed) as caught:
        await server.run(f"{HELPERS}:end", {"way": way}, SHORT, BINDS)
    assert caught.value.kind == kind and words in caught.value.detail
    assert await server.run("posixpath:basename", "a/b", Limits()) == "b"  # type: ignore[arg-type]


async def test_hanging_child_leaves_no_process(server: ForkServer) -> None:
    with pytest.raises(ChildFailed):
        await server.run(f"{HELPERS}:end", {"way": "hang"}, SHORT, BINDS)
    await asyncio.sleep(0.2)
    process = server._process
    assert process is not None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    assert children.strip() == ""


async def test_long_lived_child_keeps_state_and_survives_exceptions(server: ForkServer) -> None:
    child = await server.open(f"{HELPERS}:counter", {"start": 5}, Limits(), BINDS)
    assert await child.call("add", {"amount": 2}, 5) == 7
    with pytest.raises(ChildFailed, match="KeyError"):
        await child.call("fail", {}, 5)
    assert await asyncio.to_thread(child.call_blocking, "add", {"amount": 1}, 5.0) == 8
    with pytest.raises(ChildFailed, match="SIGSEGV"):
        await child.call("die", {}, 5)
    with pytest.raises(ChildFailed, match="ended"):
        await child.call("add", {"amount": 1}, 5)
    await child.close()


async def test_a_child_that_stands_ready_obeys_when_it_is_let_run_until_it_is_dismissed(server: ForkServer) -> None:
    child = await server.open(f"{HELPERS}:counter", {"start": 5}, Limits(), BINDS)

    def order(content: bytes) -> int:
        child.freeze()
        return child.order(content, 5.0)

    for _ in range(2):
        before = await child.call("stand_ready", {}, 5)
        asked = time.perf_counter_ns()
        started = await asyncio.to_thread(order, b"\1\2\0")
        assert asked < started < time.perf_counter_ns()
        with pytest.raises(ChildFailed, match="ZeroDivisionError"):
            await asyncio.to_thread(order, b"\0")
        await asyncio.to_thread(order, b"\1")
        child.freeze()
        child.dismiss()
        child.thaw()  # the next call may be there before the child has looked
        assert await child.call("add", {"amount": 0}, 5) == before + 4
    with pytest.raises(ChildFailed, match=r"ended or broke the protocol while an order ran"):
        await child.call("stand_ready", {}, 5)
        await asyncio.to_thread(order, b"\xff")
    await child.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="raising priority needs root")
async def test_hastened_child_goes_before_others_until_it_is_relaxed(server: ForkServer) -> None:
    child = await server.open(f"{HELPERS}:counter", {"start": 0}, Limits(), BINDS)
    assert await child.call("nice", {}, 5) == 0
    child.hasten(0)
    async with asyncio.timeout(5):
        while await child.call("nice", {}, 5) != -20:
            await asyncio.sleep(0.01)
        child.relax()
        while await child.call("nice", {}, 5) != 0:
            await asyncio.sleep(0.01)
    await child.close()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")
async def test_threads_that_a_hastened_child_starts_have_all_its_cores(server: ForkServer) -> None:
    child = await server.open(f"{HELPERS}:counter", {"start": 0}, Limits(), BINDS)
    mine = sorted(os.sched_getaffinity(0))

    async def has(cores: list[int], change: Callable[[], None]) -> None:
        async with asyncio.timeout(5):
            change()
            while await child.call("cores", {}, 5) != [cores, cores]:
                await asyncio.sleep(0.01)
                change()  # the thread of the last call may have been counted as one that stays

    for count in (1, 0, 2):
        await has(mine[-count:], functools.partial(child.hasten, count))
    await has(mine, child.relax)
    await child.close()


async def test_children_do_not_share_files(server: ForkServer) -> None:
    first = await server.open(f"{HELPERS}:counter", {"start": 0}, Limits(), BINDS)
    second = await server.open(f"{HELPERS}:counter", {"start": 0}, Limits(), BINDS)
    assert await first.call("leave_file", {}, 5) == ["mine"]
    assert await second.call("leave_file", {}, 5) == ["mine"]
    assert (await server.run(f"{HELPERS}:look", {}, Limits(), BINDS))["tmp"] == []
    await first.close()
    await second.close()


async def test_writable_bind_belongs_to_the_child(server: ForkServer, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    (tmp_path / "cache" / "old").write_text("o")
    target = Path("/cache")
    await server.run("os:system", "touch /cache/new && rm /cache/old", Limits(), (Bind(folder, target, writable=True),))  # type: ignore[arg-type]
    assert [path.name for path in folder.iterdir()] == ["new"]


async def test_missing_preload_is_one_sentence() -> None:
    with pytest.raises(SandboxError, match="no_such_module"):
        await ForkServer(("no_such_module",)).start()


async def test_preload_that_leaves_threads_is_refused_by_their_names() -> None:
    with pytest.raises(SandboxError, match=r"left 2 threads \(.*driver"):
        await ForkServer((f"{HELPERS}:start_thread",)).start()


async def test_memory_is_bounded_unless_the_bound_is_zero(server: ForkServer) -> None:
    limit = resource.RLIMIT_AS
    free = await server.run("resource:getrlimit", limit, Limits(memory_mb=0))  # type: ignore[arg-type]
    assert free == list(resource.getrlimit(limit))
    bounded = await server.run("resource:getrlimit", limit, Limits(memory_mb=100))  # type: ignore[arg-type]
    assert 100 * 2**20 < bounded[0] == bounded[1] < 2**40


async def test_devices_work_at_any_place_and_stay_the_hosts(server: ForkServer) -> None:
    zero, before = Path("/dev/zero"), os.stat("/dev/zero")
    targets = [Path("/dev/extra"), Path("/dev/folder/extra"), Path("/gpu/extra")]
    binds = [Bind(zero, target, writable=index == 0) for index, target in enumerate(targets)]
    paths = [str(target) for target in targets]
    assert await server.run(f"{HELPERS}:use_device", {"paths": paths}, Limits(), (*BINDS, *binds)) == ["00000000"] * 3
    after = os.stat(zero)
    assert (after.st_uid, after.st_mode) == (before.st_uid, before.st_mode)


async def test_a_library_that_would_keep_a_thread_for_its_memory_is_kept_from_it() -> None:
    async with ForkServer(("pyarrow",)) as server:
        assert await server.run("operator:truth", {}, Limits(wall_seconds=20.0)) is False


async def test_torch_with_threads_runs_in_a_child() -> None:
    async with ForkServer(("torch",)) as server:
        limits = Limits(wall_seconds=20)
        assert await server.run(f"{HELPERS}:threads", {}, limits, BINDS) == 512.0**3
        start = time.monotonic()
        await server.run("posixpath:basename", "a/b", limits)  # type: ignore[arg-type]
        assert time.monotonic() - start < 2.0


async def test_works_under_a_parent_closed_to_others(tmp_path: Path) -> None:
    """A copy of the package below a folder of mode 0700 serves children of another user; the mode stays as it is."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    subprocess.run(["cp", "-r", str(PACKAGE), str(closed / "cuda_agent")], check=True)
    script = (
        "import asyncio\n"
        "from cuda_agent.sandbox.forkserver import ForkServer\n"
        "from cuda_agent.sandbox.limits import Limits\n"
        "async def main():\n"
        "    async with ForkServer() as server:\n"
        "        print(await server.run('cuda_agent.sandbox.view:pick_uid', 7, Limits()))\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=closed, env={"PYTHONPATH": str(closed)}, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.strip().isdigit(), done.stderr
    assert closed.stat().st_mode & 0o777 == 0o700
