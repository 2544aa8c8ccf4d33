"""Builds of submissions: compiled in sandboxed children, kept by content in memory and on disk.

The key covers the sources of kernels/, the flags, and the glue's own key (torch, compiler, CPU or GPU architecture). A
build that failed is kept in memory only. Several processes may share the folder: a file is written whole, then renamed.
"""

import asyncio
import contextlib
import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda_agent.config import JudgeConfig
from cuda_agent.judge.build import Manifest
from cuda_agent.judge.faults import Rejected
from cuda_agent.judge.glue import SYSTEM_SYMBOLS
from cuda_agent.judge.machine import JUDGE_VERSION
from cuda_agent.judge.proof import forbidden_import
from cuda_agent.sandbox.forkserver import ChildFailed, ForkServer
from cuda_agent.sandbox.limits import Bind, Limits

REMEMBERED = 256
MOST_ON_DISK = 4_096


@dataclass(frozen=True)
class Built:
    """The extension module, what of other libraries the submission's own objects use that they must not (or nothing), and
    which functions of cuBLAS and cuDNN they use.
    """

    binary: bytes
    forbidden: str
    libraries: tuple[str, ...]


class Builds:
    """One pool's builds; identical sources asked for at the same time are compiled once."""

    def __init__(self, server: ForkServer, manifest: Manifest, config: JudgeConfig, folder: Path) -> None:
        """`folder` is made when the first build is kept."""
        self._server, self._manifest, self._config, self._folder = server, manifest, config, folder
        self._known: OrderedDict[str, asyncio.Future[Built]] = OrderedDict()
        self._system = frozenset((Path(manifest.folder) / SYSTEM_SYMBOLS).read_text().splitlines())

    async def get(self, files: Mapping[str, str]) -> Built:
        """Compile the sources under kernels/.

        Raises:
            Rejected: they do not compile, or not in time.
            SandboxError: the host cannot run the compiler.
        """
        kernels = {name: text for name, text in files.items() if name.startswith("kernels/")}
        key = self._key(kernels)
        if key not in self._known:
            self._known[key] = asyncio.ensure_future(self._made(key, kernels))
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        try:
            return await asyncio.shield(self._known[key])
        except asyncio.CancelledError:
            raise
        except Rejected as fault:
            if fault.kind is not None:  # out of time or memory: another try may do better
                self._known.pop(key, None)
            raise
        except BaseException:
            self._known.pop(key, None)
            raise

    async def _made(self, key: str, kernels: Mapping[str, str]) -> Built:
        path = self._folder / key[:2] / key
        if kept := await asyncio.to_thread(_read, path):
            return kept
        try:
            answer = await self._compile(kernels)
        except ChildFailed as failure:
            if failure.kind == "timeout":
                text = f"the build took more than {self._config.build_seconds:g} s"
                raise Rejected("build_error", "timeout", text) from failure
            raise Rejected("build_error", failure.kind, failure.detail) from failure
        if not isinstance(answer["binary"], bytes):
            raise Rejected("build_error", None, str(answer["message"]))
        forbidden = forbidden_import(answer["imports"], self._system, headers=answer["headers"])
        libraries = tuple(symbol for symbol in answer["imports"] if symbol.startswith(("cublas", "cudnn")))
        built = Built(answer["binary"], forbidden, libraries)
        await asyncio.to_thread(_write, path, built)
        return built

    async def _compile(self, kernels: Mapping[str, str]) -> dict[str, Any]:
        config = self._config
        limits = Limits(config.build_seconds + 5.0, config.memory_mb, 128, 2**28, 1_024)
        payload = {"files": dict(kernels), "manifest": str(self._manifest.path), "timeout": config.build_seconds}
        payload["fast_math"] = config.fast_math
        binds = (Bind.of(self._manifest.path.parent),)
        answer: dict[str, Any] = await self._server.run("cuda_agent.judge.candidate:build_module", payload, limits, binds)
        return answer

    def _key(self, kernels: Mapping[str, str]) -> str:
        parts = [self._manifest.folder, str(self._config.fast_math), str(JUDGE_VERSION)]
        parts += [part for name in sorted(kernels) for part in (name, kernels[name])]
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def _read(path: Path) -> Built | None:
    try:
        head, _, binary = path.read_bytes().partition(b"\n")
        digest, forbidden, libraries = json.loads(head)
    except (OSError, ValueError):
        return None
    if hashlib.sha256(binary).hexdigest() != digest:
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # the least recently used go first
    return Built(binary, forbidden, tuple(libraries))


def _write(path: Path, built: Built) -> None:
    """Keep a build; a full disk costs only the next one its time."""
    head = json.dumps([hashlib.sha256(built.binary).hexdigest(), built.forbidden, built.libraries]).encode()
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(head + b"\n" + built.binary)
        draft.replace(path)
        _prune(path.parent)
    except OSError:
        draft.unlink(missing_ok=True)


def _prune(folder: Path) -> None:
    """Keep the newest of one of the 256 folders."""
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in files[MOST_ON_DISK // 256 :]:
        file.unlink(missing_ok=True)
