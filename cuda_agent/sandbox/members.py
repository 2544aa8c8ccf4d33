"""The processes of one sandbox, listed and signalled from outside.

Every process of a pid namespace descends from its first one, because orphans become its children; so the tree below that
one is all of them. Each signal goes through a descriptor of the process, taken before it is looked at once more: a process
that took over a number is never hit. A stopped process cannot fork, so stopping until a listing brings no new one stops all.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from cuda_agent.sandbox.process import lists_children

_PASSES = 200


@dataclass(frozen=True)
class Member:
    """A process by its number here; `inner` and `group` are its number and its process group's inside the sandbox."""

    pid: int
    parent: int
    inner: int
    group: int
    over: bool  # ended, and not yet waited for


Choice = Callable[[Collection[Member]], Collection[Member]]


class Members:
    """The processes below a sandbox's first one."""

    def __init__(self, first: int) -> None:
        """Take a handle of the first process. Raises ProcessLookupError when it is gone."""
        self._first = first
        self._descriptor = os.pidfd_open(first)

    @classmethod
    def under(cls, pid: int) -> "Members | None":
        """Those of the sandbox that the process `pid` of this host has as its only child; None when there is none."""
        children = _children()(pid)
        with contextlib.suppress(ProcessLookupError):
            return cls(children[0]) if len(children) == 1 else None
        return None

    def close(self) -> None:
        """Let the handle go."""
        os.close(self._descriptor)

    def all(self) -> list[Member]:
        """Every process below the first one, parents before children; none once that has ended."""
        children = _children()
        found: list[Member] = []
        waiting = [self._first]
        while waiting:
            below = [member for member in map(_member, children(waiting.pop(0))) if member is not None]
            found += below
            waiting += [member.pid for member in below]
        try:
            signal.pidfd_send_signal(self._descriptor, 0)
        except ProcessLookupError:
            return []
        return found

    def count(self) -> int:
        """How many there are that have not ended."""
        return sum(not member.over for member in self.all())

    def freeze(self) -> None:
        """Stop them all, however fast they fork."""
        stopped: set[int] = set()
        for _ in range(_PASSES):
            new = [member for member in self.all() if member.pid not in stopped and not member.over]
            if not new:
                return
            for member in new:
                _send(member, signal.SIGSTOP)
                stopped.add(member.pid)

    def thaw(self) -> None:
        """Let them all go on."""
        for member in self.all():
            _send(member, signal.SIGCONT)

    def kill(self, choose: Choice) -> list[Member]:
        """Kill those that `choose` picks, all having been stopped before one is killed; returns them.

        They end a little later (`are_over`). What it leaves stays stopped: `thaw` lets it go on.
        """
        self.freeze()
        chosen = list(choose([member for member in self.all() if not member.over]))
        for member in chosen:
            _send(member, signal.SIGKILL)
        return chosen


def are_over(members: Collection[Member]) -> bool:
    """Whether all of these have ended by now."""
    now = ((_member(member.pid), member.inner) for member in members)
    return all(found is None or found.over or found.inner != inner for found, inner in now)


def has_variable(member: Member, assignment: bytes) -> bool:
    """Whether a process was started with this assignment (NAME=value) in its environment."""
    with contextlib.suppress(OSError):
        return assignment in Path(f"/proc/{member.pid}/environ").read_bytes().split(b"\0")
    return False


def with_descendants(roots: Collection[Member], members: Collection[Member]) -> list[Member]:
    """The roots and whatever descends from them; `members` has parents before children."""
    pids = {member.pid for member in roots}
    chosen = []
    for member in members:
        if member.pid in pids or member.parent in pids:
            pids.add(member.pid)
            chosen.append(member)
    return chosen


def _send(member: Member, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(member.pid)
        try:
            now = _member(member.pid)
            if now is not None and now.inner == member.inner:
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _member(pid: int) -> Member | None:
    """What /proc says about a process; None when it is gone, or in no namespace but this one."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    numbers, groups = fields["NSpid"].split(), fields["NSpgid"].split()
    if len(numbers) < 2:
        return None
    return Member(pid, int(fields["PPid"]), int(numbers[-1]), int(groups[-1]), fields["State"].split()[0] in "ZX")


def _children() -> Callable[[int], list[int]]:
    return _from_kernel if lists_children() else _from_table()


def _from_kernel(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        threads = os.listdir(f"/proc/{pid}/task")
        return [int(word) for thread in threads for word in _words(f"/proc/{pid}/task/{thread}/children")]
    return []


def _from_table() -> Callable[[int], list[int]]:
    """Children by a look at every process: for kernels that do not list them."""
    table: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        stat = " ".join(_words(f"/proc/{name}/stat"))
        if stat:
            table.setdefault(int(stat.rpartition(") ")[2].split()[1]), []).append(int(name))
    return lambda pid: table.get(pid, [])


def _words(path: str) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(path).read_text(errors="replace").split()
    return []
