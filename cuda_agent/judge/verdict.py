"""What is judged and what the judge says: `Submission` and `Verdict`, immutable, in the form of the judge's contract."""

import errno
import hashlib
import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal, Self

from cuda_agent.errors import ConfigError
from cuda_agent.store.canonical import clean

Status = Literal[
    "correct",
    "wrong_output",
    "hack",
    "build_error",
    "load_error",
    "launch_failure",
    "runtime_error",
    "timeout",
    "problem_invalid",
    "infra_error",
]
PHASES = ("queue", "build", "load", "verify", "time", "prove", "total")
MAX_MESSAGE = 4_000
MAX_FILES, MAX_BYTES = 64, 2 * 2**20
SOURCES = {
    "cpu": frozenset({".cpp", ".cc", ".c", ".h", ".hpp", ".inl"}),
    "cuda": frozenset({".cu", ".cuh", ".cpp", ".cc", ".c", ".h", ".hpp", ".inl"}),
}


@dataclass(frozen=True)
class Submission:
    """The agent's files by relative POSIX path: model_new.py and kernels/**. `illegal` says why a folder was refused."""

    files: Mapping[str, str]
    illegal: str = ""

    empty: ClassVar["Submission"]

    @property
    def sha256(self) -> str:
        """Digest over sorted relative path, NUL, length, bytes."""
        digest = hashlib.sha256()
        for path in sorted(self.files):
            content = self.files[path].encode("utf-8", "surrogateescape")
            digest.update(path.encode("utf-8", "surrogateescape") + b"\0" + str(len(content)).encode() + content)
        return digest.hexdigest()

    @classmethod
    def from_folder(cls, folder: Path) -> Self:
        """Read a workspace's submission; links, binaries and oversize files are noted in `illegal`, never followed.

        Raises:
            ConfigError: the folder does not exist.
        """
        if not folder.is_dir():
            raise ConfigError(f"workspace {folder} is no folder; name one that holds model.py and model_new.py")
        files: dict[str, str] = {}
        illegal = ""
        for path in _candidates(folder):
            name = path.relative_to(folder).as_posix()
            content, fault = _read(path)
            if fault:
                illegal = illegal or f"{name}: {fault}"
            else:
                files[name] = content.decode("utf-8", "surrogateescape")
        return cls(files, illegal)

    def fault(self, backend: str) -> str:
        """Why these files cannot be a submission of this backend, or an empty string."""
        if self.illegal:
            return self.illegal
        if len(self.files) > MAX_FILES or sum(map(len, self.files.values())) > MAX_BYTES:
            return f"more than {MAX_FILES} files or {MAX_BYTES} bytes"
        for name in self.files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or not name.isprintable() or len(name) > 200:
                return f"{name!r} is no allowed file name"
            if name == "model_new.py":
                continue
            if path.parts[0] != "kernels" or path.suffix not in SOURCES[backend]:
                return f"{name}: only model_new.py and sources in kernels/ ({', '.join(sorted(SOURCES[backend]))}) are taken"
        return ""


Submission.empty = Submission({})


def _candidates(folder: Path) -> list[Path]:
    kernels = folder / "kernels"
    paths = [folder / "model_new.py"] if (folder / "model_new.py").exists() or (folder / "model_new.py").is_symlink() else []
    if kernels.is_symlink():
        return [*paths, kernels]
    if kernels.is_dir():
        paths += [path for path in sorted(kernels.rglob("*")) if path.is_symlink() or not path.is_dir()]
    return [path for path in paths if "__pycache__" not in path.parts][: MAX_FILES + 1]


def _read(path: Path) -> tuple[bytes, str]:
    """A file's content, or why it is not taken; a link put there meanwhile is not followed, and a pipe not waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return b"", "links are not taken" if error.errno == errno.ELOOP else f"cannot be read ({error.strerror})"
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b"", "not a plain file"
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        return b"", f"larger than {MAX_BYTES} bytes"
    if b"\0" in content:
        return b"", "binary files are not taken"
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return b"", f"not UTF-8 text (byte {error.start}); save it as UTF-8"
    return content, ""


@dataclass(frozen=True)
class Verdict:
    """One judgement. Times are medians in milliseconds, phases are seconds; every number is finite or None."""

    status: Status
    kind: str | None
    message: str
    reward: float | None
    submission_sha256: str
    candidate_ms: float | None = None
    eager_ms: float | None = None
    compile_ms: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def speedup_vs_eager(self) -> float | None:
        """eager_ms / candidate_ms."""
        return _ratio(self.eager_ms, self.candidate_ms)

    @property
    def speedup_vs_compile(self) -> float | None:
        """compile_ms / candidate_ms."""
        return _ratio(self.compile_ms, self.candidate_ms)

    def to_json(self, workspace: str | None = None) -> dict[str, Any]:
        """The contract's object; `environment` is left to the store."""
        data: dict[str, Any] = {} if workspace is None else {"workspace": workspace}
        data |= {"status": self.status, "kind": self.kind, "message": self.message, "reward": self.reward}
        data |= {
            "candidate_ms": _finite(self.candidate_ms),
            "eager_ms": _finite(self.eager_ms),
            "compile_ms": _finite(self.compile_ms),
        }
        data |= {"speedup_vs_eager": _finite(self.speedup_vs_eager), "speedup_vs_compile": _finite(self.speedup_vs_compile)}
        data["phases"] = {name: round(self.phases.get(name, 0.0), 4) for name in PHASES}
        data["submission_sha256"] = self.submission_sha256
        return data

    def feedback(self) -> str:
        """One stable line for the agent, with details below where there are any."""
        if self.status == "correct":
            return "[PASS] verify success"
        name = self.status if self.kind is None else f"{self.status} ({self.kind})"
        return f"[FAIL] {name}: {self.message}"


def shorten(text: str, limit: int = MAX_MESSAGE) -> str:
    """Cut a message to its limit in the middle, keeping both ends; what no terminal can print is replaced."""
    text = clean(text)
    if len(text) <= limit:
        return text
    half = (limit - 5) // 2
    return f"{text[:half]}\n...\n{text[len(text) - half :]}"


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    if numerator is None or not denominator:
        return None
    return numerator / denominator


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
