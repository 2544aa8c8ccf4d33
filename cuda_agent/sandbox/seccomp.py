"""A filter of system calls that keeps a process alone: `forbid_processes`, called by trusted code in a child.

The filter is written by hand for x86_64 and aarch64 as short blocks, each of which answers for one system call; whatever
no block names is allowed. No thread can take it off again, and every later thread has it too.
"""

import errno
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from cuda_agent.sandbox import kernel

# Numbers on x86_64 and aarch64; None where the system call does not exist.
DENIED: dict[str, tuple[int | None, int | None]] = {
    # another program or process
    "execve": (59, 221),
    "execveat": (322, 281),
    "fork": (57, None),
    "vfork": (58, None),
    # into another process
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    # parts of the kernel that untrusted code has no use for
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "personality": (135, 92),
    "socket": (41, 198),
    # memory that no limit of the process counts
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    # the view of the file system, and namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "setns": (308, 268),
    "unshare": (272, 97),
    # its place among the host's work
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "setpriority": (141, 140),
    # what the kernel would do in its name while it is stopped: write to its memory, signal it to go on, or serve its timers
    # (440 of timerfd, armed for another's turn, took half a core from it)
    "io_uring_setup": (425, 425),
    "io_setup": (206, 0),
    "timer_create": (222, 107),
    "timerfd_create": (283, 85),
    "timerfd_settime": (286, 86),
    "setitimer": (38, 103),
    "alarm": (37, None),
    "mq_notify": (244, 184),
}
CLONE, CLONE3, CLONE_THREAD = (56, 220), (435, 435), 0x0001_0000
SIGCONT, F_SETSIG = 18, 10


class _Rule(NamedTuple):
    """A system call that is denied when one of its arguments has a certain value."""

    numbers: tuple[int, int]
    argument: int
    value: int


RULES: dict[str, _Rule] = {
    "kill": _Rule((62, 129), 1, SIGCONT),
    "tkill": _Rule((200, 130), 1, SIGCONT),
    "tgkill": _Rule((234, 131), 2, SIGCONT),
    "rt_sigqueueinfo": _Rule((129, 138), 1, SIGCONT),
    "rt_tgsigqueueinfo": _Rule((297, 240), 2, SIGCONT),
    "pidfd_send_signal": _Rule((424, 424), 1, SIGCONT),
    "fcntl": _Rule((72, 25), 1, F_SETSIG),
    "prctl": _Rule((157, 167), 0, kernel.PR_SET_DUMPABLE),
}

_ARCHITECTURES = {"x86_64": (0, 0xC000_003E), "aarch64": (1, 0xC000_00B7)}  # column of the numbers, AUDIT_ARCH_*
_X32 = 0x4000_0000  # x86_64's second set of numbers starts here
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data; low halves first
_ALLOW, _KILL, _ERRNO = 0x7FFF_0000, 0x8000_0000, 0x0005_0000

Instruction = tuple[int, int, int, int]  # code, how many to skip if true, if false, operand


def forbid_processes() -> None:
    """Keep this process, all its threads of now and later, to itself; irrevocable, needs no rights.

    From here on these fail with EPERM: starting a process or a program, tracing or reading other processes, any new
    socket, mounts and namespaces, loading code into the kernel, io_uring, changing own priority, cores or scheduling
    class; and what would undo a stop from outside or hide this memory from its reader: SIGCONT by any way, PR_SET_DUMPABLE.
    clone3 fails with ENOSYS, so that the C library makes threads by clone, which stays allowed for threads. A call by
    another architecture's numbers (32-bit code) ends the process; x32's numbers fail with EPERM.

    It does not bound memory, time, threads, files, or socketpair; does not touch descriptors that are open already; and
    protects nothing within this process: code loaded here can overwrite any of it, this module's caller included.

    Raises:
        OSError: the kernel has no such filters, or this is neither x86_64 nor aarch64.
    """
    machine = os.uname().machine
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no filter of system calls is written for {machine}")
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.filter_system_calls(b"".join(struct.pack("=HBBI", *step) for step in _program(machine)))


def _program(machine: str) -> Iterator[Instruction]:
    column, architecture = _ARCHITECTURES[machine]
    refuse = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
    allow = (_RETURN, 0, 0, _ALLOW)
    yield (_LOAD, 0, 0, _ARCHITECTURE)
    yield (_EQUAL, 1, 0, architecture)
    yield (_RETURN, 0, 0, _KILL)
    yield (_LOAD, 0, 0, _NUMBER)
    if machine == "x86_64":
        yield from ((_AT_LEAST, 0, 1, _X32), refuse)
    for numbers in DENIED.values():
        number = numbers[column]
        if number is not None:
            yield from ((_EQUAL, 0, 1, number), refuse)
    yield from ((_EQUAL, 0, 1, CLONE3[column]), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS))
    yield from ((_EQUAL, 0, 4, CLONE[column]), (_LOAD, 0, 0, _ARGUMENTS), (_ANY_BIT, 0, 1, CLONE_THREAD), allow, refuse)
    for rule in RULES.values():
        yield (_EQUAL, 0, 4, rule.numbers[column])
        yield from ((_LOAD, 0, 0, _ARGUMENTS + 8 * rule.argument), (_EQUAL, 0, 1, rule.value), refuse, allow)
    yield allow
