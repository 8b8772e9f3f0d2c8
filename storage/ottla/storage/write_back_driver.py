"""Linux's `sync_file_range`, which Python's library lacks: has the device begin to write."""

import ctypes
import os
from collections.abc import Callable

WAIT_BEFORE, WRITE = 1, 2
"""Wait for what is being written; begin to write the rest (SYNC_FILE_RANGE_*)."""


def _function() -> Callable[[int, int, int, int], int] | None:
    found = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
    if found is None:
        return None
    found.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    call: Callable[[int, int, int, int], int] = found
    return call


_SYNC_FILE_RANGE = _function()


def begin_write_back(fd: int, path: str) -> None:
    """Wait for what the device writes of a file, and begin to write the rest.

    Does nothing where the system has no such call.  Raises OSError if something could not be
    written: the kernel tells a descriptor once, so that no fsync hears of it again.
    """
    if _SYNC_FILE_RANGE is not None and _SYNC_FILE_RANGE(fd, 0, 0, WAIT_BEFORE | WRITE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
