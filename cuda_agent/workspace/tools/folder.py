"""Reading and writing inside one folder, whatever the agent's processes do to it meanwhile.

No symbolic link is followed, in any component: each is opened relative to the one before with O_NOFOLLOW, so a folder that
is swapped for a link between check and use leads nowhere. Only plain files are read or written. What is written belongs to
the folder's owner, the sandbox's user.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

MAX_FILE_BYTES = 4 * 2**20


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
        """Write a plain file, making the folders above it. Raises FileFault."""
        data = text.encode("utf-8", "surrogateescape")
        if len(data) > MAX_FILE_BYTES:
            raise FileFault(f"{path} would have {len(data)} bytes; at most {MAX_FILE_BYTES} are written")
        with self._opened(path, os.O_WRONLY | os.O_CREAT, make_folders=True) as descriptor:
            os.ftruncate(descriptor, 0)
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            self._own(descriptor)

    def exists(self, path: PurePosixPath) -> bool:
        """Whether a plain file is there."""
        try:
            with self._opened(path, os.O_RDONLY):
                return True
        except FileFault:
            return False

    def files(self, below: PurePosixPath) -> list[PurePosixPath]:
        """Every file below a folder (or the file itself), without following links, sorted."""
        top = self.root / below
        if top.is_file() and not top.is_symlink():
            return [below]
        found = []
        for parent, folders, names in os.walk(top, followlinks=False):
            folders[:] = [name for name in folders if name not in ("__pycache__", ".git")]
            found += [PurePosixPath(parent, name).relative_to(self.root) for name in names]
        return sorted(found)

    @contextlib.contextmanager
    def _opened(self, path: PurePosixPath, flags: int, *, make_folders: bool = False) -> Iterator[int]:
        if not path.parts:
            raise FileFault("a folder, not a file")
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in path.parts[:-1]:
                deeper = self._enter(folder, part, make_folders)
                os.close(folder)
                folder = deeper
            guarded = flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(path.parts[-1], guarded, 0o644, dir_fd=folder)
        except OSError as error:
            raise FileFault(_reason(path, error)) from error
        finally:
            os.close(folder)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise FileFault(f"{path} is not a plain file")
            yield descriptor
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
