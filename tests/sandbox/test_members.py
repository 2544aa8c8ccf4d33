"""Listing a real sandbox's processes while they end."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from cuda_agent.sandbox import members as members_module
from cuda_agent.sandbox.bubblewrap import find_bwrap
from cuda_agent.sandbox.members import Member, Members, are_over

T = TypeVar("T")
TREE = "(sleep 54341 & sleep 54342 & wait) & wait; sleep 54343"  # the subshell's children move to the first bash when it dies


@pytest.fixture
def members() -> Iterator[Members]:
    bwrap = find_bwrap()
    assert bwrap is not None
    command = [bwrap, "--unshare-user", "--unshare-pid", "--as-pid-1", "--dev-bind", "/", "/", "bash", "-c", TREE]
    with subprocess.Popen(command) as process:
        found = within(lambda: Members.under(process.pid))
        within(lambda: len(found.all()) == 3)
        yield found
        found.close()
        process.kill()


def within(happens: Callable[[], T | None], seconds: float = 5.0) -> T:
    end = time.monotonic() + seconds
    while not (result := happens()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
    return result


def test_what_moves_because_its_parent_ends_during_the_listing_is_found(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    subshell, *sleepers = members.all()
    real = members_module._children

    def children() -> Callable[[int], list[int]]:
        listed = real()

        def of(pid: int) -> list[int]:
            if pid == subshell.pid and not are_over([subshell]):
                os.kill(pid, signal.SIGKILL)
                within(lambda: are_over([subshell]))
                return []
            return listed(pid)

        return of

    monkeypatch.setattr(members_module, "_children", children)
    assert {one.pid for one in members.all()} >= {one.pid for one in sleepers}


def test_killing_tells_whom_and_they_are_over_soon(members: Members) -> None:
    def sleepers(everyone: list[Member]) -> list[Member]:
        return [one for one in everyone if one.parent != everyone[0].parent]

    killed = members.kill(sleepers)
    members.thaw()
    assert len(killed) == 2
    within(lambda: are_over(killed))
    assert not {one.pid for one in killed} & {one.pid for one in members.all() if not one.over}
