"""Classes of disk errors: no space, lack of resources in this process, or a failed directory. Pure.

Space, descriptors and memory can become available again, so requests that were refused for lack of
them may be retried. EBADF means that this process closed the file in the meantime. Every other
error is a failure of the directory, whose contents are no longer trusted.

A failed fsync is a failure with any errno, because the kernel forgets which pages it could not
write. The functions of this module do not see whether an error is from an fsync; their caller must
check that.
"""

import errno
from enum import Enum

FULL_DISK_ERRNOS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
RESOURCE_ERRNOS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
UNOPENED_ERRNOS = frozenset((errno.EMFILE, errno.ENFILE))
CLOSED_ERRNOS = frozenset((errno.EBADF,))


class DiskError(Enum):
    """Class of an OSError of the disk, which decides whether a request may be retried or the log
    directory fails."""

    FULL = "the disk is full"
    RESOURCES = "the process has no descriptors or memory left"
    CLOSED = "the file was closed meanwhile"
    FAILURE = "the disk failed"


def meaning_of(error: OSError) -> DiskError:
    """Return the class of an OSError of the disk."""
    if error.errno in FULL_DISK_ERRNOS:
        return DiskError.FULL
    if error.errno in RESOURCE_ERRNOS:
        return DiskError.RESOURCES
    if error.errno in CLOSED_ERRNOS:
        return DiskError.CLOSED
    return DiskError.FAILURE


def is_disk_failure(error: OSError) -> bool:
    """Return whether an OSError means that the whole log directory has failed."""
    return meaning_of(error) is DiskError.FAILURE


def is_unopened(error: OSError) -> bool:
    """Return whether an OSError occurred while a file was opened, before any other operation on the
    file."""
    return error.errno in UNOPENED_ERRNOS


def is_disk_full(error: OSError) -> bool:
    """Return whether an OSError is caused by a full disk."""
    return meaning_of(error) is DiskError.FULL


def in_words(error: OSError) -> str:
    """Return the text of an OSError for a reader, without errno and Python's formatting."""
    if is_disk_full(error):
        return DiskError.FULL.value
    return str(error) if error.strerror is None else error.strerror
