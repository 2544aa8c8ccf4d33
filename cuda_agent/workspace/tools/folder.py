"""Reading and writing inside one folder, whatever the agent's processes do to it meanwhile.

No symbolic link is followed, in any component: each is opened relative to the one before with O_NOFOLLOW, so a folder that
is swapped for a link between check and use leads nowhere. Only plain files are read or replaced. A write takes the place of
the old file in one step; what is written belongs to the folder's owner, the sandbox's user.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

MAX_FILE_BYTES = 4 * 2**20
_HIDDEN = ("__pycache__", ".git")
_DEPTH = 40


class FileFault(Exception):
    """A file tool cannot do what was asked; the text is for the agent. Data, not an error of the infrastructure."""


class Folder:
    """File access beneath `root`, by paths relative to it."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def relative(self, text: str) -> PurePosixPath:
        """The path that an agent's text means, relative to the root.

        Raises:
            FileFault: it is empty or lies outside.
        """
        path = PurePosixPath(text)
        if path.is_absolute():
            if not path.is_relative_to(self.root):
                raise FileFault(f"{text} is outside the workspace {self.root}")
            path = path.relative_to(self.root)
        if ".." in path.parts or "\0" in text:
            raise FileFault(f"{text} is outside the workspace; use a path below it, without '..'")
        return path

    def read(self, path: PurePosixPath) -> str:
        """The text of a plain file (undecodable bytes as surrogates). Raises FileFault."""
        with self._opened(path, os.O_RDONLY) as descriptor:
            size = os.fstat(descriptor).st_size
            if size > MAX_FILE_BYTES:
                raise FileFault(f"{path} has {size} bytes; at most {MAX_FILE_BYTES} are read")
            with open(os.dup(descriptor), "rb") as file:
                return file.read(MAX_FILE_BYTES + 1).decode("utf-8", "surrogateescape")

    def write(self, path: PurePosixPath, text: str) -> None:
        """Put a plain file there, whole or not at all, making the folders above it. Raises FileFault."""
        try:
            data = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise FileFault(f"the text for {path} holds half of a surrogate pair; write the whole character") from None
        if len(data) > MAX_FILE_BYTES:
            raise FileFault(f"{path} would have {len(data)} bytes; at most {MAX_FILE_BYTES} are written")
        with self._inside(path.parent, path, make_folders=True) as folder:
            name, mode = path.name, 0o644
            with contextlib.suppress(FileNotFoundError):
                mode = self._mode(path, folder) & 0o777
            draft = f".{secrets.token_hex(8)}.new"
            try:
                self._fill(draft, data, mode, folder)
                os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(draft, dir_fd=folder)
                raise

    def exists(self, path: PurePosixPath) -> bool:
        """Whether a plain file is there."""
        try:
            with self._opened(path, os.O_RDONLY):
                return True
        except FileFault:
            return False

    def newest(self, below: PurePosixPath, most: int) -> tuple[list[PurePosixPath], bool]:
        """Files below a folder (or the file itself), newest first, no link followed; and whether these are all.

        Raises:
            FileFault: nothing is there.
        """
        if below.parts and self.exists(below):
            return [below], True
        found: list[tuple[int, PurePosixPath]] = []
        with self._inside(below, below) as top:
            for parent, folders, names, descriptor in os.fwalk(".", dir_fd=top, follow_symlinks=False):
                place = PurePosixPath(parent)
                folders[:] = [name for name in folders if name not in _HIDDEN and len(place.parts) < _DEPTH]
                for name in names:
                    with contextlib.suppress(OSError):
                        changed = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mtime_ns
                        found.append((-changed, below / place / name))
                if len(found) > most:
                    break
        return [path for _, path in sorted(found)[:most]], len(found) <= most

    @contextlib.contextmanager
    def _opened(self, path: PurePosixPath, flags: int) -> Iterator[int]:
        with self._inside(path.parent, path) as folder:
            guarded = flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(path.name or ".", guarded, dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise FileFault(f"{path} is not a plain file")
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _inside(self, place: PurePosixPath, path: PurePosixPath, *, make_folders: bool = False) -> Iterator[int]:
        """The folder `place`, opened. What the system refuses there or in the body becomes a FileFault about `path`."""
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in place.parts:
                deeper = self._enter(folder, part, make_folders)
                os.close(folder)
                folder = deeper
            yield folder
        except OSError as error:
            raise FileFault(_reason(path, error)) from error
        finally:
            os.close(folder)

    def _mode(self, path: PurePosixPath, folder: int) -> int:
        """The mode of what is there. Raises FileFault unless it is a plain file."""
        mode = os.stat(path.name or ".", dir_fd=folder, follow_symlinks=False).st_mode
        if not stat.S_ISREG(mode):
            raise FileFault(f"{path} is not a plain file")
        return mode

    def _fill(self, name: str, data: bytes, mode: int, folder: int) -> None:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            self._own(descriptor)
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)

    def _enter(self, folder: int, part: str, make: bool) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(part, flags, dir_fd=folder)
        except FileNotFoundError:
            if not make:
                raise
        with contextlib.suppress(FileExistsError):
            os.mkdir(part, 0o755, dir_fd=folder)
        made = os.open(part, flags, dir_fd=folder)
        self._own(made)
        return made

    def _own(self, descriptor: int) -> None:
        if os.geteuid() == 0:
            owner = os.stat(self.root)
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _reason(path: PurePosixPath, error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return f"{path} is or leads through a link or a file; links are not followed"
    if error.errno == errno.ENOENT:
        return f"{path} does not exist"
    if error.errno in (errno.EISDIR, errno.ENXIO):
        return f"{path} is not a plain file"
    return f"{path}: {error.strerror}"
