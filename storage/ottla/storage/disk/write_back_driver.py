"""Binding to Linux's `sync_file_range`, which starts write-back of dirty pages. Python's library
does not have this function."""

import ctypes
import os
from collections.abc import Callable

WAIT_BEFORE, WRITE = 1, 2
"""Flags of sync_file_range: WAIT_BEFORE waits for write-back that is in progress; WRITE starts
write-back of the remaining dirty pages."""


def _function() -> Callable[[int, int, int, int], int] | None:
    found = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
    if found is None:
        return None
    found.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    call: Callable[[int, int, int, int], int] = found
    return call


_SYNC_FILE_RANGE = _function()


def begin_write_back(fd: int, path: str) -> None:
    """Wait for a file's write-back that is in progress, and start write-back of its remaining dirty
    pages.

    Does nothing on systems without `sync_file_range`. Raises OSError if pages could not be written.
    The kernel reports this error once per descriptor, so a later fsync would not report it.
    """
    if _SYNC_FILE_RANGE is not None and _SYNC_FILE_RANGE(fd, 0, 0, WAIT_BEFORE | WRITE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
