"""Opens files of log directories read-only, and checks whether a running process writes them."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ottla.cli.terminal import note
from ottla.model.errors import ConfigError
from ottla.storage.directories.directory_lock_driver import LOCK_FILE

LOCKS_FILE = Path("/proc/locks")


class ReadOnlyFile:
    """A file of a log directory, opened for reading. Its reported size is the size at the time of
    opening."""

    def __init__(self, path: Path, fd: int, on_read: Callable[[int], None]) -> None:
        self.path = path
        self.size_bytes = os.fstat(fd).st_size
        self._fd = fd
        self._on_read = on_read

    def pread(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes of the file from `position`."""
        parts = []
        end = min(position + size, self.size_bytes)
        while position < end:
            data = os.pread(self._fd, end - position, position)
            if not data:
                break  # The file was truncated after it was opened.
            parts.append(data)
            position += len(data)
            self._on_read(len(data))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def skip_hole(self, position: int) -> int:
        """Return the first position at or after `position` that may contain a byte other than zero.
        Returns the size of the file if only a hole follows."""
        try:
            return os.lseek(self._fd, position, os.SEEK_DATA)
        except OSError as error:
            # EINVAL comes from a file system that does not support holes.
            return self.size_bytes if error.errno == errno.ENXIO else position


def _ignored(size: int) -> None:
    """Ignore the number of bytes read: the default of the parameter `on_read`."""


@contextmanager
def open_read_only(path: Path, on_read: Callable[[int], None] = _ignored) -> Iterator[ReadOnlyFile]:
    """Open a file of a log directory for reading, and yield it. `on_read` is called with the number
    of bytes of each read."""
    # Without O_NONBLOCK, the opening of a named pipe would block.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ConfigError(str(path), "is no file")
        yield ReadOnlyFile(path, fd, on_read)
    finally:
        os.close(fd)


class DirectoryFiles:
    """The files of one partition's directory, opened read-only."""

    def __init__(self, directory: Path, on_read: Callable[[int], None] = _ignored) -> None:
        self.names = sorted(each.name for each in directory.iterdir() if each.is_file())
        self._directory = directory
        self._on_read = on_read

    @contextmanager
    def open(self, name: str) -> Iterator[ReadOnlyFile]:
        """Open a file of the partition's directory for reading, and yield it."""
        with open_read_only(self._directory / name, self._on_read) as file:
            yield file


def is_in_use(directory: Path) -> bool:
    """Return whether a process has locked a log directory, according to the kernel's list of locks.

    The check does not acquire the lock, because a broker that starts at this moment would find it
    locked.
    """
    try:
        found = (directory / LOCK_FILE).stat()
        locks = LOCKS_FILE.read_text()
    except OSError:
        return False
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
    place = f"{device}:{found.st_ino}"
    return any(" FLOCK " in line and place in line.split() for line in locks.splitlines())


def log_directory_of(path: Path) -> Path | None:
    """Return the log directory that contains a file or a partition, or the path itself if it is a
    log directory. Returns None if no log directory is found."""
    candidates = [path, *path.absolute().parents[:2]]
    for directory in candidates:
        with suppress(OSError):
            if (directory / LOCK_FILE).is_file():
                return directory
    return None


def note_if_in_use(paths: list[Path]) -> bool:
    """Print on standard error the log directories that a running process has locked. Returns False
    if no directory is locked."""
    found = {directory for path in paths if (directory := log_directory_of(path)) is not None}
    in_use = sorted(directory for directory in found if is_in_use(directory))
    for directory in in_use:
        note(f"{directory} is in use: what its process writes now may look unfinished")
    return bool(in_use)
