"""The `.lock` of a directory: one process at a time, by flock, which dies with its process."""

import fcntl
import os

from ottla.model.errors import ConfigError
from ottla.storage.disk_seam import Disk, DiskFile

LOCK_FILE = ".lock"

_held: dict[tuple[int, int], str] = {}
"""Directories that this process has locked, by device and inode of their lock files.

A lock belongs to its open file, so flock cannot tell this process's second name of a directory
(a trailing slash, a symbolic link, a bind mount) from another process.
"""


def lock_directory(disk: Disk, path: str, *, setting: str = "log.dirs") -> DiskFile:
    """Lock a directory for this process until `unlock_directory` of the file.

    Raises ConfigError, naming `setting`, if another process has it, or this process by another
    name of the directory.  A world's disk has no descriptors and belongs to one node by
    construction, so nothing is locked there.
    """
    file = disk.open(f"{path}/{LOCK_FILE}", create=True)
    file.pin()  # the lock goes with the descriptor
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
    """Give a directory back."""
    path = file.path.removesuffix(f"/{LOCK_FILE}")
    for identity in [held for held, name in _held.items() if name == path]:
        del _held[identity]
    file.close()
    file.unpin()
