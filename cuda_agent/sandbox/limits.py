"""What a sandboxed process may use, and which folders it sees: plain values, shared by the fork server and the shell."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True)
class Limits:
    """Bounds of one sandboxed process tree.

    `wall_seconds` is enforced from outside; the rest by the kernel inside. `memory_mb` bounds what each process may map
    beyond what it starts with (0: no bound, as CUDA needs, which reserves huge ranges), `output_bytes` bounds one message
    (or one command's text), `file_mb` bounds every file and the private /tmp.
    """

    wall_seconds: float = 30.0
    memory_mb: int = 2_000
    processes: int = 64
    output_bytes: int = 256 * 2**20
    file_mb: int = 256

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild from `to_json`."""
        return cls(**data)

    def to_json(self) -> dict[str, Any]:
        """Plain dictionary for the fork server's control channel."""
        return asdict(self)


@dataclass(frozen=True)
class Bind:
    """A folder or file of the host that a sandbox sees at `target`; a writable one is handed to the sandbox's user."""

    source: Path
    target: Path
    writable: bool = False

    @classmethod
    def of(cls, path: Path, *, writable: bool = False) -> Self:
        """Bind `path` at the same place."""
        return cls(path, path, writable)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild from `to_json`."""
        return cls(Path(data["source"]), Path(data["target"]), bool(data["writable"]))

    def to_json(self) -> dict[str, Any]:
        """Plain dictionary for the fork server's control channel."""
        return {"source": str(self.source), "target": str(self.target), "writable": self.writable}
