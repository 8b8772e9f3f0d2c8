"""Whether files have changed since they were read, looked at once in a while at most."""

import os
import time
from collections.abc import Callable, Sequence

LOOK_INTERVAL_S = 1.0
"""How often files are looked at, at most: shorter finds a new certificate sooner."""

Stamp = tuple[str, int, int, int]
Stamps = tuple[Stamp, ...]


class ChangedFiles:
    """Some files as they were when they were last seen changed."""

    def __init__(
        self, paths: Sequence[str], *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._paths = tuple(paths)
        self._now_s = now_s
        self._looked_s = now_s()
        self._stamps = stamps_of(self._paths)

    def look(self, *, is_due: bool = False) -> bool:
        """Return whether any file has changed since this last said so."""
        now_s = self._now_s()
        if now_s - self._looked_s < LOOK_INTERVAL_S and not is_due:
            return False
        self._looked_s = now_s
        before, self._stamps = self._stamps, stamps_of(self._paths)
        return self._stamps != before


def stamps_of(paths: Sequence[str]) -> Stamps:
    """Return what changes when one of these files is replaced, appears or goes."""
    return tuple(_stamp_of(path) for path in paths)


def _stamp_of(path: str) -> Stamp:
    try:
        found = os.stat(path)
    except OSError as error:
        return path, error.errno or -1, 0, 0
    return path, found.st_mtime_ns, found.st_size, found.st_ino
