"""Functions that tests run inside sandboxed children."""

import ctypes
import errno
import fcntl
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from cuda_agent.sandbox import kernel, seccomp
from cuda_agent.sandbox.limits import Bind
from cuda_agent.sandbox.shared import SHARED, attach
from cuda_agent.sandbox.worker import Ready

HELPERS = "tests.sandbox.helpers"
BINDS = (Bind.of(Path(__file__).resolve().parents[1]),)


def in_tmp() -> list[str]:
    """What lies in /tmp, but for what leads to this checkout or its interpreter, where those are kept there."""
    kept = (sys.prefix, sys.base_prefix, __file__)
    return [name for name in os.listdir("/tmp") if not any(path.startswith(f"/tmp/{name}/") for path in kept)]


def look(payload: dict[str, Any]) -> dict[str, Any]:
    """What a child is and sees."""
    return {
        "uid": os.getuid(),
        "pid": os.getpid(),
        "root": sorted(os.listdir("/")),
        "tmp": in_tmp(),
        "processes": [name for name in os.listdir("/proc") if name.isdigit()],
        "environment": dict(os.environ),
        "status": Path("/proc/self/status").read_text(),
    }


def attempt(payload: dict[str, Any]) -> dict[str, str]:
    """Try each forbidden act; the name of what stopped it, or `done`."""
    return {name: _try(act) for name, act in _acts(payload).items()}


def _acts(payload: dict[str, Any]) -> dict[str, Any]:
    return {
        "write_system": lambda: Path("/usr/evil").write_text("x"),
        "write_package": lambda: Path(payload["package"], "evil.py").write_text("x"),
        "write_root": lambda: Path("/evil").write_text("x"),
        "read_secret": lambda: Path(payload["secret"]).read_text(),
        "connect": lambda: socket.create_connection(("127.0.0.1", payload["port"]), timeout=2),
        "become_root": lambda: os.setuid(0),
        "mount": lambda: subprocess.run(["mount", "-t", "tmpfs", "none", "/tmp"], check=True, capture_output=True),
        "kill_host": lambda: os.kill(payload["host_pid"], 0),
        "kill_init": lambda: os.kill(1, signal.SIGKILL),
    }


def _try(act: Any) -> str:
    try:
        act()
    except Exception as error:
        return type(error).__name__
    return "done"


def double(payload: dict[str, Any]) -> dict[str, Any]:
    """Twice the array, and the bytes back."""
    return {"array": payload["array"] * 2, "bytes": payload["bytes"], "nested": [1, None, {"x": 1.5}]}


def end(payload: dict[str, Any]) -> None:
    """Fail in the way asked for."""
    way = payload["way"]
    if way == "exit":
        os._exit(3)
    if way == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if way == "hang":
        subprocess.Popen(["sleep", "300"])
        time.sleep(300)
    if way == "raise":
        raise ValueError("no good")
    if way == "memory":
        np.ones(2**33, dtype=np.float64)
    if way == "print":
        for number in range(5_000):
            print(number, "x" * 100)
            print(number, "x" * 100, file=sys.stderr)
        raise ValueError("after all that")
    if way == "flood":
        while True:
            os.write(1, b"x" * 65_536)
    if way == "garbage":
        os.write(3, b"\xff" * 4_096)
        time.sleep(300)
    if way == "big":
        os.write(3, (100).to_bytes(4, "little") + (2**40).to_bytes(8, "little"))
        time.sleep(300)
    if way == "close":
        os.close(3)
        time.sleep(300)


class Counter:
    """A long-lived object."""

    def __init__(self, start: int) -> None:
        """Count from `start`."""
        self.value = start

    def add(self, payload: dict[str, Any]) -> int:
        """Add and return the sum."""
        self.value += payload["amount"]
        return self.value

    def stand_ready(self, payload: dict[str, Any]) -> Ready:
        """Tell the value, then add the bytes of each order; an order of zero fails, one of 255 ends the process."""
        return Ready(self.value, self._obey)

    def _obey(self, order: bytes) -> None:
        if order == b"\xff":
            os._exit(0)
        self.value += sum(order) if sum(order) else 1 // 0

    def fail(self, payload: dict[str, Any]) -> None:
        """Raise."""
        raise KeyError("missing")

    def leave_file(self, payload: dict[str, Any]) -> list[str]:
        """Write into /tmp and list it."""
        Path("/tmp/mine").write_text("x")
        return in_tmp()

    def nice(self, payload: dict[str, Any]) -> int:
        """Priority of this process."""
        return os.getpriority(os.PRIO_PROCESS, 0)

    def cores(self, payload: dict[str, Any]) -> list[list[int]]:
        """The cores of this thread, and of one that it starts."""
        found = [sorted(os.sched_getaffinity(0))]
        thread = threading.Thread(target=lambda: found.append(sorted(os.sched_getaffinity(0))))
        thread.start()
        thread.join()
        return found

    def die(self, payload: dict[str, Any]) -> None:
        """Crash."""
        os.kill(os.getpid(), signal.SIGSEGV)


def counter(payload: dict[str, Any]) -> Counter:
    """Make a Counter."""
    return Counter(payload["start"])


def threads(payload: dict[str, Any]) -> float:
    """Use torch with two threads."""
    import torch

    torch.set_num_threads(2)
    a = torch.ones(512, 512)
    return float((a @ a).relu().sum())


class Holder:
    """An object whose memory is read from outside; its threads count on as long as they run."""

    def __init__(self, payload: dict[str, Any]) -> None:
        """Hold `size` bytes, and count in `threads` threads."""
        self.bytes = np.arange(payload.get("size", 0), dtype=np.uint8)
        self.counts = np.zeros(payload.get("threads", 0), np.int64)
        for number in range(len(self.counts)):
            threading.Thread(target=self._count, args=(number,), daemon=True).start()

    def _count(self, number: int) -> None:
        while True:
            self.counts[number] += 1

    def pid(self, payload: dict[str, Any]) -> int:
        """Number of this process, in its own namespace."""
        return os.getpid()

    def where(self, payload: dict[str, Any]) -> list[int]:
        """Addresses of the bytes and of the counts."""
        return [self.bytes.ctypes.data, self.counts.ctypes.data]

    def hole(self, payload: dict[str, Any]) -> int:
        """Address of a page before one that is not mapped."""
        self.area = np.frombuffer(mmap.mmap(-1, 2 * mmap.PAGESIZE), np.uint8)
        address = self.area.ctypes.data
        ctypes.CDLL(None).munmap(ctypes.c_void_p(address + mmap.PAGESIZE), mmap.PAGESIZE)
        return address

    def hide(self, payload: dict[str, Any]) -> None:
        """Close this process's memory to its own user."""
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)

    def leave_soon(self, payload: dict[str, Any]) -> None:
        """End a moment after the answer."""
        threading.Timer(0.05, lambda: os._exit(3)).start()

    def go_on_soon(self, payload: dict[str, Any]) -> None:
        """Have the kernel continue this process from time to time."""
        libc, timer = ctypes.CDLL(None, use_errno=True), ctypes.c_void_p()
        event = (ctypes.c_int * 16)()
        event[2] = signal.SIGCONT  # after the value of eight bytes; sigev_notify 0 is SIGEV_SIGNAL
        assert libc.timer_create(1, event, ctypes.byref(timer)) == 0
        assert libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 20_000_000, 0, 20_000_000), None) == 0


class Sharer:
    """An object that works in the shared block."""

    def __init__(self, payload: dict[str, Any]) -> None:
        """Map it."""
        self.view = attach(payload["size"])

    def increment(self, payload: dict[str, Any]) -> int:
        """Add one to each byte and return the first."""
        self.view += 1
        return int(self.view[0])

    def resize(self, payload: dict[str, Any]) -> None:
        """Try to change its size."""
        os.ftruncate(SHARED, payload["size"])


def descriptors(payload: dict[str, Any]) -> list[int]:
    """The open descriptors of this process, without the one that lists them."""
    found = [int(name) for name in os.listdir("/proc/self/fd")]
    return sorted(number for number in found if os.path.exists(f"/proc/self/fd/{number}"))


def confine(payload: dict[str, Any]) -> dict[str, str]:
    """Try, after `forbid_processes`, every act it forbids and some that it does not."""
    early, result = threading.Event(), []
    waiting = threading.Thread(target=lambda: (early.wait(), result.append(_try(os.fork))))
    waiting.start()
    seccomp.forbid_processes()
    early.set()
    waiting.join()
    pid, signals = os.getpid(), (signal.SIGCONT, 0)
    results = {name: _try(act) for name, act in _processes().items()} | {"fork_in_older_thread": result[0]}
    results |= {f"kill {number}": _try(lambda number=number: os.kill(pid, number)) for number in signals}
    results |= {f"fcntl {command}": _try(lambda command=command: fcntl.fcntl(3, command, 0)) for command in (10, fcntl.F_GETFL)}
    results["pthread_kill"] = _try(lambda: signal.pthread_kill(threading.get_ident(), signal.SIGCONT))
    results["hide"] = _try(lambda: kernel.prctl(kernel.PR_SET_DUMPABLE, 0))
    newer: list[str] = []
    thread = threading.Thread(target=lambda: newer.append(_try(os.fork)))
    thread.start()
    thread.join()
    return results | {"fork_in_newer_thread": newer[0]}


def _processes() -> dict[str, Any]:
    return {
        "fork": os.fork,
        "subprocess": lambda: subprocess.run(["true"]),
        "system": lambda: 1 / 0 if os.system("true") else None,
        "exec": lambda: os.execv("/bin/true", ["true"]),
        "connect": lambda: socket.socket(socket.AF_INET),
        "unix_socket": lambda: socket.socket(socket.AF_UNIX),
        "socketpair": socket.socketpair,
        "move": lambda: os.sched_setaffinity(0, {0}),
        "nice": lambda: os.setpriority(os.PRIO_PROCESS, 0, 1),
        "scheduler": lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)),
        "read_itself": lambda: kernel.read_memory(os.getpid(), 4_096, bytearray(1)),
        "namespace": lambda: kernel.unshare(kernel.CLONE_NEWUSER),
    }


def errors(payload: dict[str, Any]) -> dict[str, str]:
    """The error of each system call with these numbers, all arguments zero, after `forbid_processes`."""
    libc = ctypes.CDLL(None, use_errno=True)
    seccomp.forbid_processes()
    found = {}
    for name, number in payload.items():
        ctypes.set_errno(0)
        libc.syscall(number, 0, 0, 0, 0, 0, 0)
        found[name] = errno.errorcode.get(ctypes.get_errno(), "none")
    return found


def call_as_32_bit(payload: dict[str, Any]) -> int:
    """Ask for the process id by the numbers of 32-bit x86: mov eax, 20; int 0x80; ret."""
    seccomp.forbid_processes()
    area = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    area.write(bytes.fromhex("b814000000 cd80 c3"))
    function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(area)))
    return int(function())


def confined_threads(payload: dict[str, Any]) -> float:
    """Use torch with two threads after `forbid_processes`."""
    seccomp.forbid_processes()
    result = threads(payload)
    return result if len(os.listdir("/proc/self/task")) > 1 else 0.0


def start_thread() -> None:
    """Leave a thread with a name of its own."""

    def work() -> None:
        ctypes.CDLL(None).prctl(15, b"driver", 0, 0, 0)
        ready.set()
        time.sleep(300)

    ready = threading.Event()
    threading.Thread(target=work, daemon=True).start()
    ready.wait()


def use_device(payload: dict[str, Any]) -> list[str]:
    """Read four bytes from each device, and write to it."""
    found = []
    for path in payload["paths"]:
        with open(path, "r+b", buffering=0) as file:
            file.write(b"x")
            found.append(file.read(4).hex())
    return found


class Clock:
    """Notices for how long its process did not run."""

    def __init__(self, _payload: dict[str, Any]) -> None:
        pass

    def longest_pause(self, payload: dict[str, Any]) -> float:
        """Seconds between two looks at the time, the most of all within `seconds`."""
        longest, before = 0.0, time.monotonic()
        end = before + payload["seconds"]
        while before < end:
            now = time.monotonic()
            longest, before = max(longest, now - before), now
        return longest
