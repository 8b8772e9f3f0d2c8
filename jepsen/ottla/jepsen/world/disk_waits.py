"""Reads of logs that wait for the disk, for invariant checks outside an event loop."""

from collections.abc import Callable
from typing import TypeVar

from ottla.storage.disk.disk_seam import DiskFile, NotCachedError
from ottla.storage.disk.slice import FileSlice

T = TypeVar("T")


def waited_for(look: Callable[[], T]) -> T:
    """Call `look`, an invariant check that reads logs, until it raises no NotCachedError, and
    return its result. After each such error, the missing pages are loaded into the page cache."""
    while True:
        try:
            return look()
        except NotCachedError as missing:
            _bring_in(missing.file, missing.position, missing.size)


def bytes_of(piece: FileSlice | bytes) -> bytes:
    """Return the bytes of a piece of a fetch response, which is a slice of a file or a copy of a
    few records. The call waits for the disk, as sendfile does."""
    if isinstance(piece, bytes):
        return piece
    _bring_in(piece.file, piece.position, piece.length)
    return piece.read()


def _bring_in(file: DiskFile, position: int, size: int) -> None:
    bring_in = getattr(file, "bring_in", None)  # only simulated files have it
    if bring_in is not None:
        bring_in(position, size)
    else:
        file.pread(position, size)
