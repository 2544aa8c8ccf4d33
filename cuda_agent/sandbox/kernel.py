"""The few Linux system calls that Python lacks, through ctypes; each raises OSError with the kernel's reason.

And which processes descend from one, as /proc lists them.
"""

import contextlib
import ctypes
import errno
import os
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    Writable = WriteableBuffer | np.ndarray[Any, Any]  # numpy's types call an array a buffer from Python 3.12 on only

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x0002_0000, 0x0400_0000, 0x0800_0000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x1000_0000, 0x2000_0000, 0x4000_0000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_SECCOMP = {"x86_64": 317, "aarch64": 277}

_MOUNT_SETATTR = 442  # the same number on every architecture

_PIECE = 2**30  # process_vm_readv moves less than 2 GiB at once
_MOST_EXTENTS = 1_024  # IOV_MAX

_libc = ctypes.CDLL(None, use_errno=True)
_machine = os.uname().machine


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


class _Extent(ctypes.Structure):
    _fields_ = (("base", ctypes.c_size_t), ("size", ctypes.c_size_t))


for _call in (_libc.process_vm_readv, _libc.process_vm_writev):
    _call.restype = ctypes.c_ssize_t
    _call.argtypes = (
        ctypes.c_int,
        ctypes.POINTER(_Extent),
        ctypes.c_ulong,
        ctypes.POINTER(_Extent),
        ctypes.c_ulong,
        ctypes.c_ulong,
    )


def threads_of(pid: int) -> list[int]:
    """Numbers of a process's threads; none once it has ended."""
    try:
        return sorted(map(int, os.listdir(f"/proc/{pid}/task")))
    except OSError:
        return []


def children_of(pid: int) -> list[int]:
    """Numbers of the processes that any thread of a process started and that live, as the kernel lists them.

    A thread that ends meanwhile hands its own to another one, which may have been asked before: such a listing can miss some.
    """
    found: list[int] = []
    for thread in threads_of(pid):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as listed:
            found += map(int, listed.read().split())
    return found


def _check(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def unshare(flags: int) -> None:
    """Enter new namespaces (for CLONE_NEWPID: the next child enters)."""
    _check(_libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
    """Enter the namespace behind an open /proc/*/ns file."""
    _check(_libc.setns(descriptor, kind), "setns")


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2)."""
    encoded = [None if text is None else text.encode() for text in (source, target, kind, data)]
    _check(_libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]), f"mount {target}")


def seal_mount(target: str, *, read_only: bool) -> None:
    """Make a bind mount, with the mounts below it where the kernel can, nosuid and perhaps read-only."""
    attributes = (1 if read_only else 0) | 2  # MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID
    argument = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    recursive = 0x8000
    if _libc.syscall(_MOUNT_SETATTR, -100, target.encode(), recursive, argument, ctypes.sizeof(argument)) != 0:
        flags = MS_REMOUNT | MS_BIND | MS_NOSUID | (MS_RDONLY if read_only else 0)
        mount("none", target, None, flags)


def pivot_root_here() -> None:
    """Make the current folder (a mount point) the root and detach the old one."""
    _check(_libc.syscall(_PIVOT_ROOT[_machine], b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "umount old root")
    os.chdir("/")


def prctl(option: int, value: int = 0) -> None:
    """prctl(2) with one argument."""
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def filter_system_calls(steps: bytes) -> None:
    """Install a seccomp filter (an array of struct sock_filter) for all threads; needs no_new_privs."""
    set_filter, for_all_threads, no_mitigation = 1, 1, 4
    program = _Program(len(steps) // 8, steps)
    # Where the kernel slows filtered processes down against speculation unless told not to, measured code would suffer.
    for flags in (for_all_threads | no_mitigation, for_all_threads):
        failed = _libc.syscall(_SECCOMP[_machine], set_filter, flags, ctypes.byref(program))
        if failed != -1 or ctypes.get_errno() != errno.EINVAL:
            break
    if failed > 0:
        raise OSError(errno.EBUSY, f"thread {failed} has a system call filter of its own")
    _check(failed, "seccomp")


def empty_bounding_set() -> None:
    """Drop every capability from the bounding set; needs CAP_SETPCAP, so do it before the user id changes."""
    for capability in range(64):
        if _libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) != 0:
            break


def drop_capabilities() -> None:
    """Empty the permitted, effective and inheritable sets of this process."""
    header = (ctypes.c_uint32 * 2)(0x2008_0522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    _check(_libc.syscall(_CAPSET[_machine], header, (ctypes.c_uint32 * 6)()), "capset")


def sethostname(name: str) -> None:
    """Set the host name of the current uts namespace."""
    _check(_libc.sethostname(name.encode(), len(name)), "sethostname")


def read_memory(pid: int, address: int, buffer: "Writable") -> None:
    """Fill a contiguous buffer from another process's memory; any thread may, and the other process takes no part.

    Raises:
        OSError: EFAULT when not all of it can be read, whatever the address; ESRCH, EPERM.
    """
    _transfer(_libc.process_vm_readv, pid, address, buffer)


def gather_memory(pid: int, addresses: "np.ndarray[Any, Any]", buffer: "Writable") -> None:
    """Fill a contiguous buffer with equally many bytes from each of the addresses (uint64), in order; as `read_memory`."""
    raw: Any = buffer
    size, count = memoryview(raw).nbytes, len(addresses)
    each = size // max(1, count)
    first = ctypes.c_char.from_buffer(raw)
    extents: Any = np.empty((count, 2), np.uint64)  # an array of struct iovec
    extents[:, 0], extents[:, 1] = addresses, each
    for start in range(0, count, _MOST_EXTENTS):
        some = min(_MOST_EXTENTS, count - start)
        remote = _Extent.from_buffer(extents, start * ctypes.sizeof(_Extent))
        local = _Extent(ctypes.addressof(first) + start * each, some * each)
        if _libc.process_vm_readv(pid, local, 1, remote, some, 0) != some * each:
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))


def write_memory(pid: int, address: int, buffer: "Writable") -> None:
    """Copy a contiguous buffer into another process's memory; as `read_memory`."""
    _transfer(_libc.process_vm_writev, pid, address, buffer)


def _transfer(call: Any, pid: int, address: int, buffer: "Writable") -> None:
    raw: Any = buffer
    size, done = memoryview(raw).nbytes, 0
    if size == 0:
        return
    if not 0 <= address <= 2**64 - size:
        raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
    first = ctypes.c_char.from_buffer(raw)
    while done < size:
        piece = min(_PIECE, size - done)
        local, remote = _Extent(ctypes.addressof(first) + done, piece), _Extent(address + done, piece)
        got = call(pid, local, 1, remote, 1, 0)
        if got <= 0:
            number = ctypes.get_errno() if got < 0 else errno.EFAULT
            raise OSError(number, os.strerror(number))
        done += got


def keep_heap() -> None:
    """Keep freed memory in the process and large blocks in the heap, so that repeated calls reuse warm pages."""
    trim_threshold, mmap_threshold = -1, -3
    _libc.mallopt(mmap_threshold, 2**30)
    _libc.mallopt(trim_threshold, 2**31 - 1)
