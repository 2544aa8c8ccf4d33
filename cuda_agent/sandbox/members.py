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

from cuda_agent.sandbox.kernel import children_of
from cuda_agent.sandbox.process import lists_children

_PASSES = 200
_LISTINGS = 20


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
        ended: set[int] = set()
        for _ in range(_LISTINGS):
            found, gone = self._listing()
            if gone <= ended:
                break
            ended |= gone  # during the listing, perhaps: what they left may have moved to where that had been already
        try:
            signal.pidfd_send_signal(self._descriptor, 0)
        except ProcessLookupError:
            return []
        return found

    def _listing(self) -> tuple[list[Member], set[int]]:
        """The members met on one way through the tree, and the numbers of those that had ended at its end."""
        children = _children()
        waiting, pids = [self._first], list[int]()
        while waiting:
            below = children(waiting.pop(0))
            pids += below
            waiting += below
        members = {pid: _member(pid) for pid in pids}
        gone = {pid for pid, member in members.items() if member is None or member.over}
        return [member for member in members.values() if member is not None], gone

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


def locks_limit(member: Member) -> str:
    """A process's hard limit of file locks, empty when it is gone.

    Linux enforces none, every child inherits it, and nobody without privileges raises it: it tells where a process comes
    from even when that one has left its parent, its session and its environment behind.
    """
    lines = _lines(f"/proc/{member.pid}/limits")
    return next((line.split()[4] for line in lines if line.startswith("Max file locks")), "")


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
    fields = dict(line.split(":", 1) for line in _lines(f"/proc/{pid}/status") if ":" in line)
    numbers, groups = fields.get("NSpid", "").split(), fields.get("NSpgid", "").split()
    if len(numbers) < 2:
        return None
    return Member(pid, int(fields["PPid"]), int(numbers[-1]), int(groups[-1]), fields["State"].split()[0] in "ZX")


def _children() -> Callable[[int], list[int]]:
    return children_of if lists_children() else _from_table()


def _from_table() -> Callable[[int], list[int]]:
    """Children by a look at every process: for kernels that do not list them."""
    table: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        stat = " ".join(_lines(f"/proc/{name}/stat"))
        if stat:
            table.setdefault(int(stat.rpartition(") ")[2].split()[1]), []).append(int(name))
    return lambda pid: table.get(pid, [])


def _lines(path: str) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(path).read_text(errors="replace").splitlines()
    return []
