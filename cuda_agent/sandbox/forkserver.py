"""Client of the fork server: `run` a function in a fresh isolated child, or `open` a long-lived one.

A child that fails raises `ChildFailed`, which is data about untrusted code; `SandboxError` is raised only when the host
cannot start or keep the server. One ForkServer belongs to one event loop.
"""

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from cuda_agent.errors import SandboxError
from cuda_agent.sandbox.limits import Bind, Limits
from cuda_agent.sandbox.process import Process, WentOnError, descend, lists_children
from cuda_agent.sandbox.view import PACKAGE, interpreter
from cuda_agent.sandbox.wire import (
    DISMISSED,
    DONE,
    FAILED,
    MAX_ANSWER,
    WireError,
    decode,
    encode,
    reader,
    receive_blocking,
    receive_byte,
    send_blocking,
)

if TYPE_CHECKING:
    import numpy as np

    from cuda_agent.sandbox.kernel import Writable

LOG_BYTES = 64 * 1024
FREEZE_SECONDS = 2.0
START_SECONDS = 30.0  # for a child's isolation, on a host however busy; 0.01 s on an idle one
_LEFT_OUT = 97  # exit code of a child that could not isolate itself

FailureKind = Literal["timeout", "crash", "oom", "exception"]


@dataclass
class ChildFailed(Exception):
    """Untrusted code failed: how, in words, the exception's type name if there was one, and the child's last output."""

    kind: FailureKind
    detail: str
    name: str = ""
    trace: str = ""

    def __str__(self) -> str:
        """Kind and detail in one line."""
        return f"{self.kind}: {self.detail}"


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    """What the server and so every child sees of the environment: nothing of the caller's."""
    base = {
        "PATH": f"{Path(interpreter()).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "USER": "sandbox",
        "LANG": "C.UTF-8",
    }
    # No library may start a thread in the server, where it would not survive the forks: pandas brings pyarrow along, for one.
    base |= {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
    base |= {"PYTHONPATH": str(PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1"}
    return base | dict(extra)


class Child:
    """A long-lived isolated child; calls are answered one at a time."""

    def __init__(self, server: "ForkServer", number: int, sock: socket.socket, log: int, limits: Limits) -> None:
        """Made by ForkServer only."""
        self._server, self._number, self._sock, self._log, self._limits = server, number, sock, log, limits
        self._lock = asyncio.Lock()
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._first = 0
        self._worker: Process | None = None
        self.alive = True

    async def call(self, method: str, payload: dict[str, Any], timeout: float) -> Any:
        """Call a public method of the child's object.

        Raises:
            ChildFailed: it raised (the child lives on), or it crashed, hung or answered nonsense (the child is gone).
        """
        async with self._lock:
            return await self._exchange({"method": method, "payload": payload}, timeout)

    def call_blocking(self, method: str, payload: dict[str, Any], timeout: float) -> Any:
        """The same from a thread of the caller's: no event loop between request and answer.

        Raises:
            ChildFailed: as for `call`; after a crash or time-out the child must still be closed.
        """
        with self._told(timeout, method) as deadline:
            send_blocking(self._sock, {"method": method, "payload": payload}, deadline)
            return self._result(receive_blocking(self._sock, self._limits.output_bytes, deadline, MAX_ANSWER))

    def order(self, order: bytes, timeout: float) -> int:
        """Let a frozen child that stands ready (`worker.Ready`) obey 1 to 255 bytes; when it was let run (`perf_counter_ns`).

        Returns when it says that it is done, or raises; it is not frozen again.

        Raises:
            ChildFailed: as for `call` and `thaw`; after a crash or time-out the child must still be closed.
        """
        with self._told(timeout, "an order") as deadline:
            self._sock.send(bytes((len(order),)) + order)
            started = self.thaw()
            if (word := receive_byte(self._sock, deadline)) == DONE:
                return started
            if word == FAILED:
                self._result(receive_blocking(self._sock, self._limits.output_bytes, deadline, MAX_ANSWER))
            raise WireError("it answered an order with something else")

    def dismiss(self) -> None:
        """Let a child that stands ready take calls again; one that has ended needs no telling."""
        with contextlib.suppress(OSError):
            self._sock.send(DISMISSED)

    @contextlib.contextmanager
    def _told(self, timeout: float, what: str) -> Iterator[float]:
        """A deadline for an exchange from a thread, and in words how it failed."""
        try:
            yield time.monotonic() + timeout
        except TimeoutError as error:
            self.alive = False
            raise ChildFailed("timeout", f"no answer within {timeout:g} s") from error
        except (EOFError, OSError, WireError) as error:
            self.alive = False
            raise ChildFailed("crash", f"the process ended or broke the protocol while {what} ran") from error

    def hasten(self, cores: int) -> None:
        """Give the threads that the child has by now so many cores (0: all), and priority over others, where the host allows."""
        self._server._tell("hasten", self._number, cores=cores)

    def relax(self) -> None:
        """Take back what `hasten` gave."""
        self._server._tell("relax", self._number)

    def worker_pid(self) -> int:
        """Number of the process that runs the code, as this process sees it."""
        return self._process().pid

    def freeze(self) -> None:
        """Stop every thread of the child and return when they have stopped; from any thread, some tenths of a millisecond.

        Raises:
            ChildFailed: it has ended, or did not stop within 2 s; it must be closed then.
        """
        with self._blamed():
            self._process().stop(FREEZE_SECONDS)

    def thaw(self) -> int:
        """Continue a frozen child; when that was (`time.perf_counter_ns`).

        Raises:
            ChildFailed: it has ended, or had gone on by itself, so that what was read in between proves nothing.
        """
        with self._blamed():
            return self._process().go_on()

    def peek(self, address: int, size: int) -> bytearray:
        """`size` bytes of the child's memory; see `peek_into`."""
        buffer = bytearray(size)
        self.peek_into(address, buffer)
        return buffer

    def peek_into(self, address: int, buffer: "Writable") -> None:
        """Fill a contiguous buffer from the child's memory, without its help; from any thread.

        Raises:
            ChildFailed: it has ended, or not all of this memory can be read.
            SandboxError: this host does not let one process read another's memory.
        """
        with self._blamed():
            self._process().read_into(address, buffer)

    def gather(self, addresses: "np.ndarray[Any, Any]", size: int) -> "np.ndarray[Any, Any]":
        """`size` bytes of the child's memory from each of the addresses (uint64), one row each; raises as `peek_into`."""
        with self._blamed():
            return self._process().gather(addresses, size)

    def executable(self) -> list[tuple[int, int]]:
        """Start and end of every mapping of the child that may be executed; raises as `peek_into`."""
        with self._blamed():
            return self._process().executable()

    def shared(self) -> list[tuple[int, int]]:
        """Address and size of every mapping of the block it shares; raises as `peek_into`."""
        with self._blamed():
            return self._process().shared()

    def filters(self) -> int:
        """How many filters of system calls the child has; raises as `peek_into`."""
        with self._blamed():
            return self._process().filters()

    def poke(self, address: int, content: bytes) -> None:
        """Write into the child's memory; raises as `peek_into`."""
        with self._blamed():
            self._process().write_from(address, bytearray(content))

    def kill(self) -> None:
        """Kill the child now; whoever waits for its answer gets ChildFailed. `close` is still due."""
        self.alive = False
        self._server._kill(self._number)

    async def ended(self, timeout: float) -> None:
        """Wait until a killed child and all it started are gone, but no longer than that; before `close`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._ended), timeout)

    async def close(self) -> None:
        """Kill the child and everything it started."""
        self.alive = False
        self._server._kill(self._number)
        self._server._forget(self._number)
        self._sock.close()
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def _process(self) -> Process:
        if self._worker is None:
            raise SandboxError("a child's process cannot be found: /proc lists no children here; use another kernel")
        return self._worker

    async def _find_worker(self) -> None:
        """Wait for the process that will run the code, which waits for its first request meanwhile: none has run yet."""
        deadline = time.monotonic() + START_SECONDS
        while lists_children() and not self._ended.done():
            pid = descend(self._first, self._server._generations()) if self._first else None
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    self._worker = Process(pid)
                    return
            if self._server._control is None:
                raise SandboxError("the fork server has ended; restart the judge")
            if time.monotonic() > deadline:
                raise SandboxError(f"a sandbox did not start within {START_SECONDS:g} s; the host is too busy")
            await asyncio.sleep(0.001)

    @contextlib.contextmanager
    def _blamed(self) -> Iterator[None]:
        """Put in words what went wrong with the child's process, and whose fault that is."""
        if not self.alive:
            raise ChildFailed("crash", "the process had ended before the call")
        try:
            yield
        except ProcessLookupError as error:
            self.alive = False
            raise ChildFailed("crash", "the process has ended") from error
        except WentOnError as error:
            raise ChildFailed("crash", "the process went on by itself while it was stopped") from error
        except TimeoutError as error:
            raise ChildFailed("timeout", f"the process did not stop within {FREEZE_SECONDS:g} s") from error
        except OSError as error:
            if error.errno == errno.EFAULT:
                raise ChildFailed("crash", "the process named memory that cannot be read") from error
            if self._process().hides_memory():
                raise ChildFailed("crash", "the process closed its memory to its own user") from error
            raise SandboxError(f"a child's memory cannot be read here: {error.strerror}; see `cuda-agent doctor`") from error

    async def _exchange(self, message: dict[str, Any], timeout: float) -> Any:
        if not self.alive:
            raise ChildFailed("crash", "the process had ended before the call")
        try:
            async with asyncio.timeout(timeout):
                await self._send(message)
                answer = await self._receive()
        except TimeoutError as error:
            await self._stop()
            raise ChildFailed("timeout", f"no answer within {timeout:g} s", trace=self._output()) from error
        except WireError as error:
            await self._stop()
            raise ChildFailed("crash", f"broke the protocol: {error}", trace=self._output()) from error
        except (EOFError, OSError) as error:
            raise await self._died() from error
        except asyncio.CancelledError:  # half an exchange: nothing after it could be told apart
            await self._stop()
            raise
        return self._result(answer)

    async def _send(self, message: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        for piece in encode(message):
            await loop.sock_sendall(self._sock, piece)

    async def _receive(self) -> Any:
        loop = asyncio.get_running_loop()
        filling = reader(self._limits.output_bytes, MAX_ANSWER)
        view = next(filling)
        while True:
            while view:
                got = await loop.sock_recv_into(self._sock, view)
                if not got:
                    raise EOFError
                view = view[got:]
            try:
                view = next(filling)
            except StopIteration as done:
                return decode(*done.value)

    def _result(self, answer: Any) -> Any:
        if not isinstance(answer, dict):
            raise ChildFailed("crash", "broke the protocol")
        if "ok" in answer:
            return answer["ok"]
        error = answer.get("error")
        if not isinstance(error, dict):
            raise ChildFailed("crash", "broke the protocol")
        kind: FailureKind = "oom" if error.get("kind") == "oom" else "exception"
        name, text = str(error.get("type"))[:200], str(error.get("text"))[:4_000]
        raise ChildFailed(kind, f"{name}: {text}", name=name, trace=str(error.get("trace"))[-4_000:])

    async def _stop(self) -> None:
        self.alive = False
        self._server._kill(self._number)

    async def _died(self) -> ChildFailed:
        """Wait for the exit code of a child whose socket closed and put it in words."""
        self.alive = False
        try:
            code = await asyncio.wait_for(asyncio.shield(self._ended), 1.0)
        except TimeoutError:
            self._server._kill(self._number)
            return ChildFailed("crash", "the process closed its connection", trace=self._output())
        if code == _LEFT_OUT and self._worker is None:  # later on it is a number like any other
            raise SandboxError(
                f"a sandbox could not be set up: {self._output()[:300]}; run `cuda-agent judge` as root or allow user namespaces"
            )
        if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
            return ChildFailed("oom", "killed (SIGKILL), most likely out of memory", trace=self._output())
        if code > 128:
            name = signal.Signals(code - 128).name if code - 128 in set(signal.Signals) else f"signal {code - 128}"
            return ChildFailed("crash", f"killed by {name}", name=name, trace=self._output())
        return ChildFailed("crash", f"the process ended itself with exit code {code}", trace=self._output())

    def _output(self) -> str:
        """What the child printed, as far as the log's fixed size reaches."""
        if self._log < 0:
            return ""
        return os.pread(self._log, LOG_BYTES, 0).rstrip(b"\0").decode(errors="replace")[-2_000:]


class ForkServer:
    """A trusted process with `preload` imported that forks isolated children; see the module's contract."""

    def __init__(self, preload: tuple[str, ...] = (), environment: Mapping[str, str] | None = None) -> None:
        """Prepare; `preload` names modules, or `module:function` to call once. `environment` is all that children inherit."""
        self._preload, self._environment = preload, _environment(environment or {})
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._children: dict[int, Child] = {}
        self._count = 0
        self.abilities: dict[str, Any] = {}

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def start(self, timeout: float = 120.0) -> None:
        """Start the server process and wait until its modules are loaded.

        Raises:
            SandboxError: it ended or did not answer in time.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        command = (interpreter(), "-m", "cuda_agent.sandbox.server", str(theirs.fileno()), *self._preload)
        self._process = await asyncio.create_subprocess_exec(
            *command,
            env=self._environment,
            cwd="/",
            pass_fds=(theirs.fileno(),),
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self._control = ours
        loop = asyncio.get_running_loop()
        try:
            packet = await asyncio.wait_for(loop.sock_recv(ours, 65_536), timeout)
        except (TimeoutError, OSError) as error:
            await self.close()
            raise SandboxError(f"the fork server did not start within {timeout:g} s; see its output above") from error
        answer = json.loads(packet or b"{}")
        if "ready" not in answer:
            await self.close()
            raise SandboxError(f"the fork server could not load {', '.join(self._preload)}: {answer.get('failed', 'it ended')}")
        self.abilities = answer["ready"]
        loop.add_reader(ours.fileno(), self._on_control)

    async def close(self) -> None:
        """End the server and every child."""
        for child in list(self._children.values()):
            await child.close()
        if self._control is not None:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                await asyncio.wait_for(self._process.wait(), 5.0)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
            self._process = None

    async def run(
        self,
        target: str,
        payload: dict[str, Any],
        limits: Limits,
        binds: Sequence[Bind] = (),
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        shared: int | None = None,
    ) -> Any:
        """Call `module:function` with the payload in a child of its own and return its result.

        The child finds a copy of the descriptor `shared` as `shared.SHARED`.

        Raises:
            ChildFailed: the function raised, or the child crashed, hung or ran out of memory.
            SandboxError: the server is gone or the sandbox could not be made.
        """
        async with self._spawned(limits, binds, cwd, env, shared) as child:
            return await child._exchange({"target": target, "payload": payload, "keep": False}, limits.wall_seconds)

    async def open(
        self,
        target: str,
        payload: dict[str, Any],
        limits: Limits,
        binds: Sequence[Bind] = (),
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        shared: int | None = None,
    ) -> Child:
        """Start a long-lived child around the object that `module:function` returns; close it after use.

        `shared` as for `run`; the time until the child's isolation stands does not count as its wall time.

        Raises:
            ChildFailed: making the object failed; the child is gone then.
            SandboxError: as for `run`.
        """
        child = self._spawn(limits, binds, cwd, env, shared)
        try:
            await child._find_worker()
            await child._exchange({"target": target, "payload": payload, "keep": True}, limits.wall_seconds)
        except BaseException:
            await child.close()
            raise
        return child

    @contextlib.asynccontextmanager
    async def _spawned(
        self, limits: Limits, binds: Sequence[Bind], cwd: str | None, env: Mapping[str, str] | None, shared: int | None
    ) -> AsyncIterator[Child]:
        child = self._spawn(limits, binds, cwd, env, shared)
        try:
            yield child
        finally:
            await child.close()

    def _spawn(
        self, limits: Limits, binds: Sequence[Bind], cwd: str | None, env: Mapping[str, str] | None, shared: int | None
    ) -> Child:
        if self._control is None:
            raise SandboxError("the fork server is not running; call start() first")
        self._count += 1
        number = self._count
        ours, theirs = _socket_pair()
        log = _log_file()
        request = {"op": "spawn", "id": number, "limits": limits.to_json(), "binds": [bind.to_json() for bind in binds]}
        request |= {"cwd": cwd, "env": dict(env or {})}
        try:
            descriptors = [theirs.fileno(), log, *([] if shared is None else [shared])]
            socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
        except OSError as error:
            ours.close()
            os.close(log)
            raise SandboxError("the fork server has ended; restart the judge") from error
        finally:
            theirs.close()
        child = Child(self, number, ours, log, limits)
        self._children[number] = child
        return child

    def _generations(self) -> int:
        """How many lie between a child's first process and its worker, counting that; see `server._step_between`."""
        return 2 if self.abilities["pid_namespace"] and not self.abilities["returns"] else 1

    def _kill(self, number: int) -> None:
        self._tell("kill", number)

    def _tell(self, operation: str, number: int, **more: int) -> None:
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(json.dumps({"op": operation, "id": number, **more}).encode())

    def _forget(self, number: int) -> None:
        self._children.pop(number, None)

    def _on_control(self) -> None:
        assert self._control is not None
        try:
            packet = self._control.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
            self._control = None
            return
        report = json.loads(packet)
        child = self._children.get(report["id"])
        if child is None:
            return
        if "pid" in report:
            child._first = report["pid"]
        elif not child._ended.done():
            child._ended.set_result(report["exit"])


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, 4 * 2**20)
    ours.setblocking(False)
    return ours, theirs


def _log_file() -> int:
    """A memory file of fixed size for a child's output: a flood beyond it fails in the child, or is dropped (`worker`)."""
    descriptor = os.memfd_create("output", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, LOG_BYTES)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return descriptor
