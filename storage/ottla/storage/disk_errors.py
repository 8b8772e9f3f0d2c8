"""What a disk's error means: no room, no resources of this process, or a failed directory.

A full disk gets room again and a process its descriptors and memory, so what was refused for one of
these is tried again.  A file that was closed meanwhile (EBADF) is this process's own doing.  Every
other error is a failure of the directory: what is on it can no longer be trusted to be read or
kept.  A failed fsync is one whatever its number, for the kernel forgets what it could not write;
the caller knows that it was an fsync.
"""

import errno
from enum import Enum

FULL_DISK_ERRNOS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
RESOURCE_ERRNOS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
UNOPENED_ERRNOS = frozenset((errno.EMFILE, errno.ENFILE))
CLOSED_ERRNOS = frozenset((errno.EBADF,))


class DiskError(Enum):
    """The meanings of an OSError of a disk."""

    FULL = "the disk is full"
    RESOURCES = "the process has no descriptors or memory left"
    CLOSED = "the file was closed meanwhile"
    FAILURE = "the disk failed"


def meaning_of(error: OSError) -> DiskError:
    """Return what an error of a file or directory means."""
    if error.errno in FULL_DISK_ERRNOS:
        return DiskError.FULL
    if error.errno in RESOURCE_ERRNOS:
        return DiskError.RESOURCES
    if error.errno in CLOSED_ERRNOS:
        return DiskError.CLOSED
    return DiskError.FAILURE


def is_disk_failure(error: OSError) -> bool:
    """Return whether an error is a failure of its directory."""
    return meaning_of(error) is DiskError.FAILURE


def is_unopened(error: OSError) -> bool:
    """Return whether a file could not be opened, and nothing was done with it."""
    return error.errno in UNOPENED_ERRNOS


def is_disk_full(error: OSError) -> bool:
    """Return whether an error is for want of room."""
    return meaning_of(error) is DiskError.FULL


def in_words(error: OSError) -> str:
    """Return what went wrong, for people: without the number, and without what Python adds."""
    if is_disk_full(error):
        return DiskError.FULL.value
    return str(error) if error.strerror is None else error.strerror
