"""Folders that appear whole or not at all, and their digests. No torch here.

A folder is filled under a temporary name beside its final one; the marker COMPLETE (JSON: the digests of the parts) is
written last and flushed, then the folder is renamed. Readers accept only folders with a marker.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from cuda_agent.errors import LearningError

MARKER = "COMPLETE"


def folder_sha256(folder: Path) -> str:
    """Digest of a folder's content: over its files by sorted relative path, each as path, NUL, length, NUL, bytes.

    Markers are left out, so that a part and its copy elsewhere have the same digest.
    """
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MARKER):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def begin(folder: Path) -> Path:
    """An empty folder to fill in place of `folder`; what an earlier, interrupted attempt left is removed.

    Raises:
        LearningError: `folder` is already complete: a checkpoint is never overwritten.
    """
    if (folder / MARKER).exists():
        raise LearningError(f"checkpoint {folder} is already complete; save under another name")
    partial = partial_of(folder)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return partial


def partial_of(folder: Path) -> Path:
    """Where `folder` is filled before it is renamed; the same in every process of a training run."""
    return folder.with_name(f".{folder.name}.partial")


def publish(folder: Path) -> Mapping[str, str]:
    """Mark and rename what was written to `partial_of(folder)`.

    Returns:
        sha256 by part (the sub-folders).
    """
    partial = partial_of(folder)
    digests = {part.name: folder_sha256(part) for part in sorted(partial.iterdir()) if part.is_dir()}
    with (partial / MARKER).open("w", encoding="utf-8") as file:
        json.dump(digests, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    shutil.rmtree(folder, ignore_errors=True)  # only ever an incomplete one: begin() refused the others
    os.replace(partial, folder)
    return digests


def require_complete(folder: Path) -> Mapping[str, str]:
    """The digests of a complete checkpoint by part.

    Raises:
        LearningError: there is no marker, so the folder is missing or was never finished.
    """
    try:
        digests: dict[str, str] = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LearningError(f"checkpoint {folder} is missing or incomplete; resume from an earlier one") from error
    return digests
