"""The `.lock` of a directory: one process at a time, by flock, which dies with its process."""

import fcntl

from ottla.model.errors import ConfigError
from ottla.storage.disk_seam import Disk, DiskFile

LOCK_FILE = ".lock"


def lock_directory(disk: Disk, path: str, *, setting: str = "log.dirs") -> DiskFile:
    """Take the directory for this process until `unlock_directory` of the file.

    ConfigError, naming `setting`, when another process has it.  A world's disk has no descriptors
    and belongs to one node by construction, so there nothing is locked.
    """
    file = disk.open(f"{path}/{LOCK_FILE}", create=True)
    file.pin()  # the lock goes with the descriptor
    try:
        descriptor = file.fileno()
    except OSError:
        return file
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        unlock_directory(file)
        raise ConfigError(
            setting, f"{path} is in use by another process; stop it or choose another directory"
        ) from None
    return file


def unlock_directory(file: DiskFile) -> None:
    """Give a directory back."""
    file.close()
    file.unpin()
