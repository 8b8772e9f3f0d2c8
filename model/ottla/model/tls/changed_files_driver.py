"""Detection of files that have changed. The files are checked at most once in `LOOK_INTERVAL_S`."""

import os
import time
from collections.abc import Callable, Sequence

LOOK_INTERVAL_S = 1.0
"""Minimum time between two checks, in seconds. With a shorter time, a new certificate is detected
sooner. With a longer time, there are fewer system calls."""

Stamp = tuple[str, int, int, int]
Stamps = tuple[Stamp, ...]


class ChangedFiles:
    """A set of files whose changes are detected, and their state at the last check."""

    def __init__(
        self, paths: Sequence[str], *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._paths = tuple(paths)
        self._now_s = now_s
        self._looked_s = now_s()
        self._stamps = stamps_of(self._paths)

    def look(self, *, is_due: bool = False) -> bool:
        """Return whether any file has changed since the last check. Unless `is_due`, returns False
        without a check if the last check was less than `LOOK_INTERVAL_S` ago."""
        now_s = self._now_s()
        if now_s - self._looked_s < LOOK_INTERVAL_S and not is_due:
            return False
        self._looked_s = now_s
        before, self._stamps = self._stamps, stamps_of(self._paths)
        return self._stamps != before


def stamps_of(paths: Sequence[str]) -> Stamps:
    """Return a value that changes when one of the files at `paths` is modified, replaced, created
    or removed."""
    return tuple(_stamp_of(path) for path in paths)


def _stamp_of(path: str) -> Stamp:
    try:
        found = os.stat(path)
    except OSError as error:
        return path, error.errno or -1, 0, 0
    return path, found.st_mtime_ns, found.st_size, found.st_ino
