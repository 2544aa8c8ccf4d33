"""Blobs: immutable bytes named by their sha256, in a folder or an S3 bucket.

A blob's URI is <root>/<sha256[:2]>/<sha256>; a folder is a manifest blob (canonical JSON of relative path -> digest and
size) plus one blob per file, so unchanged files are stored once. Writing the same content twice is harmless. Reading always
checks the digest: a blob is what it says or a StoreError.
"""

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec

from cuda_agent.errors import StoreError

CHUNK = 1 << 20  # bytes


@dataclass(frozen=True)
class Blob:
    """Where a blob lies and what it must hash to."""

    uri: str
    sha256: str
    size: int  # bytes; of a folder: of all its files


def sha256_file(path: Path) -> str:
    """Hex digest of a file, read in chunks."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


class Blobs:
    """The blob store under one root. Stateless but for the file system handle."""

    def __init__(self, root: str) -> None:
        """Name the root: a folder, file:// or s3://bucket/prefix. Nothing is read or written yet."""
        self.root = root if "://" in root else Path(root).expanduser().absolute().as_uri()
        self.root = self.root.rstrip("/")

    def put_bytes(self, data: bytes) -> Blob:
        """Store `data`.

        Raises:
            StoreError: the root cannot be written.
        """
        digest = hashlib.sha256(data).hexdigest()
        uri = self._uri(digest)
        self._write(uri, data, len(data))
        return Blob(uri, digest, len(data))

    def get_bytes(self, uri: str, sha256: str | None = None) -> bytes:
        """The bytes of a blob; the digest is checked against `sha256`, or against the name.

        Raises:
            StoreError: the blob is absent, unreadable, or not what it says.
        """
        with _boundary("read", uri):
            files, path = fsspec.core.url_to_fs(uri)
            data: bytes = files.cat_file(path)
        _check(uri, hashlib.sha256(data).hexdigest(), sha256)
        return data

    def put_file(self, path: Path) -> Blob:
        """Store one file without holding it in memory.

        Raises:
            StoreError: the file cannot be read or the root cannot be written.
        """
        with _boundary("read", str(path)):
            digest, size = sha256_file(path), path.stat().st_size
        uri = self._uri(digest)
        self._write(uri, path, size)
        return Blob(uri, digest, size)

    def get_file(self, uri: str, destination: Path, sha256: str | None = None) -> Path:
        """Copy a blob to `destination`, which appears only when complete.

        Raises:
            StoreError: the blob is absent or not what it says.
        """
        with _boundary("read", uri):
            files, path = fsspec.core.url_to_fs(uri)
            destination.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=destination.parent, prefix=".blob-")
            os.close(handle)
            partial = Path(name)
            try:
                files.get_file(path, str(partial))
                _check(uri, sha256_file(partial), sha256)
                partial.chmod(0o644)
                partial.replace(destination)
            finally:
                partial.unlink(missing_ok=True)
        return destination

    def put_folder(self, folder: Path, *, follow_links: bool = False) -> Blob:
        """Store every regular file below `folder`; links are refused, or stored as the files that they name.

        Raises:
            StoreError: the folder is missing or empty, holds a link, or the root cannot be written.
        """
        manifest: dict[str, Any] = {}
        for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
            if path.is_symlink() and not follow_links:
                raise StoreError(f"{path} is a link; a stored folder holds regular files only")
            if path.is_file():
                blob = self.put_file(path)
                manifest[path.relative_to(folder).as_posix()] = {"sha256": blob.sha256, "size": blob.size}
        if not manifest:
            raise StoreError(f"{folder} holds no file to store")
        stored = self.put_bytes(json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode())
        return Blob(stored.uri, stored.sha256, sum(entry["size"] for entry in manifest.values()))

    def get_folder(self, uri: str, destination: Path, sha256: str | None = None) -> Path:
        """Recreate a stored folder as `destination`; an existing one is kept as it is, for it is complete.

        Raises:
            StoreError: a blob is absent or not what it says.
        """
        if destination.is_dir():
            return destination
        manifest = self._manifest(uri, sha256)
        destination.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=destination.parent, prefix=".folder-"))
        try:
            for name, entry in manifest.items():
                self.get_file(_sibling(uri, entry["sha256"]), partial / name, entry["sha256"])
            partial.chmod(0o755)
            try:
                partial.rename(destination)
            except OSError:  # another process finished the same folder first
                if not destination.is_dir():
                    raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return destination

    def exists(self, uri: str) -> bool:
        """Whether the blob is there.

        Raises:
            StoreError: the root cannot be asked.
        """
        with _boundary("look up", uri):
            files, path = fsspec.core.url_to_fs(uri)
            return bool(files.exists(path))

    def _uri(self, digest: str) -> str:
        return f"{self.root}/{digest[:2]}/{digest}"

    def _manifest(self, uri: str, sha256: str | None) -> dict[str, Any]:
        try:
            manifest: dict[str, Any] = json.loads(self.get_bytes(uri, sha256))
        except ValueError as error:
            raise StoreError(f"blob {uri} is no folder's manifest") from error
        for name in manifest:
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise StoreError(f"blob {uri} names {name!r}, which lies outside the folder")
        return manifest

    def _write(self, uri: str, content: bytes | Path, size: int) -> None:
        """Write unless it is there at its full size. Local files appear by rename; S3 objects appear whole anyway."""
        with _boundary("write", uri):
            files, path = fsspec.core.url_to_fs(uri)
            files.invalidate_cache(path.rsplit("/", 1)[0])
            if files.exists(path) and files.size(path) == size:
                return
            if "file" in (files.protocol if isinstance(files.protocol, tuple) else (files.protocol,)):
                _write_local(Path(path), content)
            elif isinstance(content, Path):
                files.put_file(str(content), path)
            else:
                files.pipe_file(path, content)


def _write_local(path: Path, content: bytes | Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            if isinstance(content, Path):
                with content.open("rb") as source:
                    shutil.copyfileobj(source, stream, CHUNK)
            else:
                stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        partial.chmod(0o644)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _sibling(uri: str, digest: str) -> str:
    """The URI of another blob under the same root as `uri`."""
    root = uri.rsplit("/", 2)[0]
    return f"{root}/{digest[:2]}/{digest}"


def _check(uri: str, digest: str, expected: str | None) -> None:
    if digest != (expected or uri.rsplit("/", 1)[1]):
        raise StoreError(f"blob {uri} does not have the digest recorded for it; restore it from a copy")


class _boundary:
    """The named boundary to files and S3: whatever the backend raises becomes a StoreError."""

    def __init__(self, verb: str, what: str) -> None:
        self.verb, self.what = verb, what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StoreError) or not isinstance(error, Exception):
            return
        raise StoreError(f"could not {self.verb} blob {self.what}: {_reason(error)}; check the path and credentials") from error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__} {error}".strip().splitlines()[0]
