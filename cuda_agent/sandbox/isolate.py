"""How a freshly forked process locks itself in before it sees untrusted code. Runs once, in the child, in this order.

Own mount, net, ipc and uts namespaces; a new root with only the view of `view.py`; then limits, an own user id, no
capabilities, no new privileges. What the host refuses is left out only when the server's probe found it missing too.
"""

import os
import resource
from dataclasses import dataclass
from pathlib import Path

from cuda_agent.sandbox import kernel, view
from cuda_agent.sandbox.limits import Bind, Limits

_BASE = "/sys"  # the new root is assembled over a folder that no bind is taken from


@dataclass(frozen=True)
class Abilities:
    """What this host lets the fork server do; found once at its start."""

    namespaces: bool
    pid_namespace: bool
    own_uid: bool
    returns: bool  # the server may come back from unshare(CLONE_NEWPID); an ordinary user's may not


def enter_view(limits: Limits, binds: tuple[Bind, ...], uid: int | None) -> None:
    """Leave the host's file system for a private root; needs CAP_SYS_ADMIN in its user namespace."""
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS)
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", _BASE, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755,size=1m")
    for link, target in view.symlinks().items():
        os.symlink(target, _BASE + str(link))
    folders = ("/proc", "/dev", "/tmp")
    for folder in folders:
        os.makedirs(_BASE + folder, exist_ok=True)
    _private_folders(limits)
    for bind in view.in_order((*view.runtime_binds(), *binds)):
        _bind(bind, uid)
    _accounts(uid)
    kernel.mount("none", _BASE, None, kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV)
    os.chdir(_BASE)
    kernel.pivot_root_here()
    kernel.sethostname("sandbox")


def _private_folders(limits: Limits) -> None:
    # Before the old root goes: an ordinary user may mount proc only where a whole one is in sight.
    kernel.mount("proc", _BASE + "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    kernel.mount("tmpfs", _BASE + "/tmp", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, f"mode=1777,size={limits.file_mb}m")
    kernel.mount("tmpfs", _BASE + "/dev", "tmpfs", kernel.MS_NOSUID, "mode=755,size=64k")
    for name in view.DEVICES:
        _bind(Bind.of(Path("/dev") / name), None)
    os.mkdir(_BASE + "/dev/shm")
    kernel.mount("tmpfs", _BASE + "/dev/shm", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, f"mode=1777,size={limits.file_mb}m")
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        os.symlink(f"/proc/self/fd/{number}", f"{_BASE}/dev/{name}")
    os.symlink("/proc/self/fd", _BASE + "/dev/fd")


def _bind(bind: Bind, uid: int | None) -> None:
    device = bind.source.is_char_device()  # stays usable, and the host's: it is neither sealed nor handed over
    target = _BASE + str(bind.target)
    if bind.source.is_dir():
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    if bind.writable and uid is not None and not device:
        _hand_over(bind.source, uid)
    kernel.mount(str(bind.source), target, None, kernel.MS_BIND | kernel.MS_REC)
    if not device:
        kernel.seal_mount(target, read_only=not bind.writable)


def _hand_over(folder: Path, uid: int) -> None:
    os.lchown(folder, uid, uid)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.lchown(os.path.join(parent, name), uid, uid)


def _accounts(uid: int | None) -> None:
    number = os.getuid() if uid is None else uid
    etc = Path(_BASE + "/etc")
    etc.mkdir(exist_ok=True)
    (etc / "passwd").write_text(f"root:x:0:0::/:/usr/sbin/nologin\nsandbox:x:{number}:{number}::/tmp:/bin/bash\n")
    (etc / "group").write_text(f"root:x:0:\nsandbox:x:{number}:\n")


def limit(limits: Limits) -> None:
    """Apply the kernel's limits; memory counts from what is mapped now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    sizes = {
        resource.RLIMIT_FSIZE: limits.file_mb * 2**20,
        resource.RLIMIT_NPROC: limits.processes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: 512,
        resource.RLIMIT_MEMLOCK: 0,
    }
    if limits.memory_mb:
        sizes[resource.RLIMIT_AS] = pages * os.sysconf("SC_PAGE_SIZE") + limits.memory_mb * 2**20
    for name, size in sizes.items():
        hard = resource.getrlimit(name)[1]
        capped = size if hard == resource.RLIM_INFINITY else min(size, hard)
        resource.setrlimit(name, (capped, capped))


def drop_privileges(uid: int | None) -> None:
    """Become `uid` (None keeps the present one), without capabilities and without a way to gain any."""
    kernel.empty_bounding_set()
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    kernel.drop_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
