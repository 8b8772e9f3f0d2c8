"""Lock of a log directory by its lock file `.lock` (flock). Only one process at a time can have the
lock. The lock ends with the process."""

import fcntl
import os

from ottla.model.errors import ConfigError
from ottla.storage.disk.disk_seam import Disk, DiskFile

LOCK_FILE = ".lock"

_held: dict[tuple[int, int], str] = {}
"""Paths of the lock files that this process has locked, by device and inode.

If flock fails, another process may have the lock. Otherwise, this process has locked the same
directory under another path (a trailing slash, a symbolic link, a bind mount).
"""


def lock_directory(disk: Disk, path: str, *, setting: str = "log.dirs") -> DiskFile:
    """Lock a log directory for this process. The lock lasts until `unlock_directory` is called with
    the returned file.

    Raises ConfigError, naming `setting`, if another process has locked the directory, or if this
    process has locked it under another path. On a simulated disk, which belongs to one node,
    nothing is locked.
    """
    file = disk.open(f"{path}/{LOCK_FILE}", create=True)
    file.pin()  # Closing the descriptor would release the lock.
    try:
        descriptor = file.fileno()
    except OSError:
        return file
    found = os.fstat(descriptor)
    identity = found.st_dev, found.st_ino
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        file.unpin()
        alias = _held.get(identity)
        if alias is None or alias == path:
            reason = f"{path} is in use by another process; stop it or choose another directory"
        else:
            reason = f"{path} is the same directory as {alias}; name each directory once"
        raise ConfigError(setting, reason) from None
    _held[identity] = path
    return file


def unlock_directory(file: DiskFile) -> None:
    """Release the lock of a log directory. `file` is its lock file."""
    path = file.path.removesuffix(f"/{LOCK_FILE}")
    for identity in [held for held, name in _held.items() if name == path]:
        del _held[identity]
    file.close()
    file.unpin()
