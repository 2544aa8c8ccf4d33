"""What a confined child can no longer do, and what it still can."""

import os
import re
from pathlib import Path

import pytest

from cuda_agent.sandbox.forkserver import ChildFailed, ForkServer
from cuda_agent.sandbox.limits import Limits
from cuda_agent.sandbox.seccomp import CLONE, CLONE3, DENIED, RULES, SIGCONT
from tests.sandbox.helpers import BINDS, HELPERS

MACHINE = os.uname().machine
COLUMN = {"x86_64": 0, "aarch64": 1}[MACHINE]
HEADERS = (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm-generic/unistd.h"))


async def test_confined_child_is_alone(server: ForkServer) -> None:
    found = await server.run(f"{HELPERS}:confine", {}, Limits(), BINDS)
    allowed = {"socketpair", "kill 0", "fcntl 3"}
    assert {name for name, result in found.items() if result == "done"} == allowed
    assert found.pop("system") == "ZeroDivisionError"
    assert {result for name, result in found.items() if name not in allowed} == {"PermissionError"}


async def test_forbidden_system_calls_fail_with_eperm(server: ForkServer) -> None:
    numbers = {name: columns[COLUMN] for name, columns in DENIED.items() if columns[COLUMN] is not None}
    numbers |= {"clone": CLONE[COLUMN], "clone3": CLONE3[COLUMN]}
    if MACHINE == "x86_64":
        numbers["x32 getpid"] = 0x4000_0000 + 39
    found = await server.run(f"{HELPERS}:errors", numbers, Limits(), BINDS)
    assert found.pop("clone3") == "ENOSYS"
    assert set(found.values()) == {"EPERM"}, found


@pytest.mark.skipif(MACHINE != "x86_64", reason="32-bit x86")
async def test_32_bit_system_call_ends_the_child(server: ForkServer) -> None:
    with pytest.raises(ChildFailed, match=r"SIGSYS|SIGSEGV"):
        await server.run(f"{HELPERS}:call_as_32_bit", {}, Limits(), BINDS)


async def test_torch_makes_its_threads_in_a_confined_child() -> None:
    async with ForkServer(("torch",)) as server:
        assert await server.run(f"{HELPERS}:confined_threads", {}, Limits(wall_seconds=20), BINDS) == 512.0**3


@pytest.mark.parametrize("column", [0, 1])
def test_numbers_are_those_of_the_kernels_headers(column: int) -> None:
    if not HEADERS[column].exists():
        pytest.skip("no kernel headers")
    defined: dict[str, str] = {}
    for name, number in re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)", HEADERS[column].read_text()):
        defined.setdefault(name, number)
    table = {name: numbers[column] for name, numbers in DENIED.items()} | {
        name: rule.numbers[column] for name, rule in RULES.items()
    }
    table |= {"clone": CLONE[column], "clone3": CLONE3[column]}
    for name, number in table.items():
        assert defined.get(name) == (None if number is None else str(number)), name
    assert SIGCONT == 18
