"""The fork server's process: single-threaded and trusted; loads heavy modules once and forks children in milliseconds.

`python -m cuda_agent.sandbox.server DESCRIPTOR MODULE...` speaks JSON packets on a SOCK_SEQPACKET socket: `spawn` (with the
child's socket, log and perhaps a shared block as descriptors), `kill`, `hasten`, `relax`. It answers {id, pid} when a child was
forked and {id, exit} when it has ended, and ends with its client.
Each child is the first process of an own pid namespace, so that killing it kills all it started; its own child, the
worker, runs the code.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cuda_agent.sandbox import isolate, kernel, view, worker
from cuda_agent.sandbox.limits import Bind, Limits
from cuda_agent.sandbox.shared import SHARED

PACKET = 128 * 1024
SOCKET = 3


class Server:
    """State of the fork server: the client's socket and the living children by id and by process."""

    def __init__(self, control: socket.socket, abilities: isolate.Abilities) -> None:
        """Serve `control` on a host with these abilities."""
        self.control, self.abilities = control, abilities
        self.by_id: dict[int, int] = {}
        self.by_pid: dict[int, int] = {}
        self.uids: dict[int, int] = {}
        self.spawned = 0
        self.pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC) if abilities.returns else -1

    def loop(self) -> None:
        """Serve until the client closes its end, then kill every child."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poller = select.poll()
        poller.register(self.control, select.POLLIN)
        poller.register(woken, select.POLLIN)
        while True:
            ready = dict(poller.poll())
            if woken in ready:
                os.read(woken, 4096)
                self.reap()
            if self.control.fileno() in ready and not self.serve():
                break
        for pid in list(self.by_pid):
            os.kill(pid, signal.SIGKILL)

    def serve(self) -> bool:
        """Handle one packet; False when the client is gone."""
        try:
            packet, descriptors, _, _ = socket.recv_fds(self.control, PACKET, 3)
        except ConnectionResetError:
            return False
        if not packet:
            return False
        request = json.loads(packet)
        if request["op"] == "spawn":
            self.spawn(request, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
        elif request["op"] == "kill" and request["id"] in self.by_id:
            os.kill(self.by_id[request["id"]], signal.SIGKILL)
        elif request["op"] == "hasten" and request["id"] in self.by_id:
            _hasten(self.by_id[request["id"]], request["cores"])
        elif request["op"] == "relax" and request["id"] in self.by_id:
            _relax(self.by_id[request["id"]])
        return True

    def spawn(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Fork a child for this request."""
        self.spawned += 1
        uid = view.pick_uid(os.getpid() * 4099 + self.spawned * 7) if self.abilities.own_uid else None
        if self.abilities.returns:
            kernel.unshare(kernel.CLONE_NEWPID)
        pid = os.fork()
        if pid == 0:
            if self.abilities.pid_namespace and not self.abilities.returns:
                _step_between()
            _child(request, descriptors, self.abilities, uid)
        if self.abilities.returns:
            kernel.setns(self.pid_namespace, kernel.CLONE_NEWPID)
        self.by_id[request["id"]], self.by_pid[pid] = pid, request["id"]
        if uid is not None and not self.abilities.pid_namespace:
            self.uids[pid] = uid
        self._report({"id": request["id"], "pid": pid})

    def reap(self) -> None:
        """Report every child that has ended."""
        while self.by_pid:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            child = self.by_pid.pop(pid, None)
            if pid in self.uids:
                _kill_user(self.uids.pop(pid))
            if child is not None:
                self.by_id.pop(child, None)
                self._report({"id": child, "exit": os.waitstatus_to_exitcode(status)})

    def _report(self, answer: dict[str, int]) -> None:
        with contextlib.suppress(OSError):  # a client that is gone is noticed by the loop
            self.control.send(json.dumps(answer).encode())


def _step_between() -> None:
    """Return in the first process of a new pid namespace; this one stays behind and relays its end."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.unshare(kernel.CLONE_NEWPID)
    pid = os.fork()
    if pid:
        os.closerange(SOCKET, 1_024)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os._exit(code if code >= 0 else 128 - code)


def _child(request: dict[str, Any], descriptors: list[int], abilities: isolate.Abilities, uid: int | None) -> None:
    """The first process of the child's namespaces: isolates, forks the worker, ends with its exit code."""
    try:
        _keep_only(descriptors)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        limits = Limits.from_json(request["limits"])
        if abilities.namespaces:
            isolate.enter_view(limits, tuple(map(Bind.from_json, request["binds"])), uid)
        os.umask(0o022)
        os.environ.update(request["env"])
        os.chdir(request["cwd"] or ("/tmp" if abilities.namespaces else "/"))
        pid = os.fork()
        if pid == 0:
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
            isolate.limit(limits)
            isolate.drop_privileges(uid)
            worker.run(SOCKET)
        os.closerange(SOCKET, SHARED + 1)
        os._exit(_wait_for(pid))
    except BaseException as error:  # the boundary: nothing may unwind into the server's loop
        os.write(2, f"sandbox: {type(error).__name__}: {error}".encode())
        os._exit(97)


def _keep_only(descriptors: list[int]) -> None:
    """Leave the child its socket (3), its log as both outputs, the shared block (4) if there is one, and nothing else."""
    sock, log, *shared = (os.dup(descriptor) for descriptor in descriptors)
    null = os.open("/dev/null", os.O_RDONLY)
    high = 200
    for offset, source in enumerate((null, log, sock, *shared)):
        os.dup2(source, high + offset)
    os.dup2(high, 0)
    os.dup2(high + 1, 1)
    os.dup2(high + 1, 2)
    os.dup2(high + 2, SOCKET)
    if shared:
        os.dup2(high + 3, SHARED)
    os.closerange(SHARED + 1 if shared else SHARED, 1_024)


def _wait_for(pid: int) -> int:
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _hasten(first: int, count: int) -> None:
    """Give a child's threads the highest ordinary priority and the first `count` cores (0: all), where this process may.

    What is timed is then not kept waiting. Where there are as many threads as cores, each gets its own: two threads of one
    parallel loop never share a core, where the one that waits for the other, spinning, would keep it from running. Where there
    are fewer, those that they start in each call inherit all cores. All children get the same cores in the same order: one
    core may be half as fast as the next for seconds, where another machine's work sits on its other half.
    """
    cores = sorted(os.sched_getaffinity(0), reverse=True)[: count or None]
    for pid, threads in _processes(first):
        for number, thread in enumerate(threads):
            _schedule(pid, thread, -20, {cores[number]} if len(threads) == len(cores) else set(cores))


def _relax(first: int) -> None:
    """Undo `_hasten`: what spins or hangs in such a child later on would keep everyone else waiting."""
    cores = os.sched_getaffinity(0)
    for pid, threads in _processes(first):
        for thread in threads:
            _schedule(pid, thread, os.getpriority(os.PRIO_PROCESS, 0), cores)


def _processes(first: int) -> Iterator[tuple[int, list[int]]]:
    """A process and all below it, each with its threads."""
    pids = [first]
    while pids:
        pid = pids.pop()
        pids += kernel.children_of(pid)
        yield pid, kernel.threads_of(pid)


def _schedule(pid: int, thread: int, nice: int, cores: set[int]) -> None:
    """Set a thread's priority and cores, and the priority of its process' session, as far as the host allows."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))
    with contextlib.suppress(OSError):
        os.sched_setaffinity(thread, cores)
        os.setpriority(os.PRIO_PROCESS, thread, nice)


def _kill_user(uid: int) -> None:
    """Kill what a child without a pid namespace left behind: every process of its own user."""
    pid = os.fork()
    if pid == 0:
        os.setresuid(uid, uid, uid)
        try:
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def become_root_of_user_namespace() -> bool:
    """As an ordinary user, enter a user namespace in which this process may mount; False where that is forbidden."""
    uid, gid = os.geteuid(), os.getegid()
    try:
        kernel.unshare(kernel.CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    except OSError:
        return False
    return True


def find_abilities() -> isolate.Abilities:
    """Try each step of the isolation in a throw-away process."""
    root = os.geteuid() == 0
    able = root or become_root_of_user_namespace()
    pids = able and _works(lambda: kernel.unshare(kernel.CLONE_NEWPID))
    uid = view.pick_uid(os.getpid())
    return isolate.Abilities(
        namespaces=pids and _works(_enter_as_first_process),
        pid_namespace=pids,
        own_uid=root and _works(lambda: isolate.drop_privileges(uid)),
        returns=pids and _works(_enter_and_return),
    )


def _enter_and_return() -> None:
    """Whether this process may come back to its own pid namespace."""
    descriptor = os.open("/proc/self/ns/pid", os.O_RDONLY)
    kernel.unshare(kernel.CLONE_NEWPID)
    kernel.setns(descriptor, kernel.CLONE_NEWPID)


def _enter_as_first_process() -> None:
    """Build the whole view in a new pid namespace, as a child would."""
    kernel.unshare(kernel.CLONE_NEWPID)
    if not _works(lambda: isolate.enter_view(Limits(), (), None)):
        raise OSError


def _works(step: Callable[[], None]) -> bool:
    """Run a step in a throw-away process."""
    pid = os.fork()
    if pid == 0:
        try:
            step()
        except BaseException:  # the boundary: a refusal of any kind means the host cannot do it
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def preload(modules: list[str]) -> None:
    """Import modules, call those given as `module:function`, and freeze the heap so that forks share it."""
    for name in modules:
        module, _, function = name.partition(":")
        loaded = importlib.import_module(module)
        if function:
            getattr(loaded, function)()
    gc.collect()
    gc.freeze()


def main() -> None:
    """Start: load, check that no thread was started, report abilities, serve."""
    control = socket.socket(fileno=int(sys.argv[1]))
    try:
        preload(sys.argv[2:])
    except Exception as error:  # the boundary: reported to the client, which raises SandboxError
        control.send(json.dumps({"failed": f"{type(error).__name__}: {error}"[:4_000]}).encode())
        return
    threads = [path.read_text().strip() for path in sorted(Path("/proc/self/task").glob("*/comm"))]
    if len(threads) != 1:
        text = f"loading left {len(threads)} threads ({', '.join(threads)}), which do not survive a fork"
        control.send(json.dumps({"failed": text[:4_000]}).encode())
        return
    abilities = find_abilities()
    control.send(json.dumps({"ready": vars(abilities)}).encode())
    Server(control, abilities).loop()


if __name__ == "__main__":
    main()
