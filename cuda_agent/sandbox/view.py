"""Which parts of the host a sandbox sees: the system, this interpreter and this package, all read-only.

Everything else (homes, the checkout's state, other sandboxes' folders) is absent, because the view starts from an empty
root. A folder of mode 0700 above the interpreter or the checkout does no harm: only its name is made anew.
"""

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import cuda_agent
from cuda_agent.sandbox.limits import Bind

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SETTINGS = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "ssl")
DEVICES = ("null", "zero", "full", "random", "urandom")
GPU_NODES = re.compile(r"nvidia\d+|nvidiactl|nvidia-uvm|nvidia-uvm-tools")
PACKAGE = Path(cuda_agent.__file__).resolve().parent


def symlinks() -> dict[Path, str]:
    """Links to repeat in the empty root, such as /bin -> usr/bin."""
    return {Path(path): os.readlink(path) for path in SYSTEM if os.path.islink(path)}


def runtime_binds() -> list[Bind]:
    """The read-only folders that a sandboxed Python and compiler need, parents first."""
    paths = [Path(path) for path in SYSTEM if os.path.isdir(path) and not os.path.islink(path)]
    paths += [Path("/etc") / name for name in SETTINGS if (Path("/etc") / name).exists()]
    for path in (Path(sys.base_prefix), Path(sys.prefix), PACKAGE):
        if not any(path.is_relative_to(known) for known in paths):
            paths.append(path)
    return [Bind.of(path) for path in paths]


def gpu_binds() -> list[Bind]:
    """The nodes of the NVIDIA driver that this host has: every GPU, and what CUDA needs beside them."""
    nodes = sorted(path for path in Path("/dev").iterdir() if GPU_NODES.fullmatch(path.name))
    return [Bind.of(path) for path in nodes if path.is_char_device()]


def in_order(binds: Iterable[Bind]) -> list[Bind]:
    """Sort so that a bind inside another one comes after it."""
    return sorted(binds, key=lambda bind: len(bind.target.parts))


def interpreter() -> str:
    """Path of this Python inside every sandbox."""
    return sys.executable


def pick_uid(seed: int) -> int:
    """A user id that no account has: unique while the process `seed` lives, within what this user namespace maps."""
    low, size = 1_000_000, 2**31 - 2_000_000
    if not _mapped(low + 4_194_304):
        low, size = 20_000, 40_000
    return low + seed % size


def _mapped(uid: int) -> bool:
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        inside, _, count = (int(part) for part in line.split())
        if inside <= uid < inside + count:
            return True
    return False
