"""Reads of logs that wait for the disk, for invariant checks outside an event loop."""

from collections.abc import Callable
from typing import TypeVar

from ottla.storage.disk.disk_seam import DiskFile, NotCachedError
from ottla.storage.disk.slice import FileSlice

T = TypeVar("T")


def waited_for(look: Callable[[], T]) -> T:
    """Call `look`, which reads logs, and return its result. If `look` raises NotCachedError, load
    the missing pages into the page cache and repeat the call."""
    while True:
        try:
            return look()
        except NotCachedError as missing:
            _bring_in(missing.file, missing.position, missing.size)


def bytes_of(piece: FileSlice | bytes) -> bytes:
    """Return the bytes of one piece of a fetch response: a slice of a file, or a copy of a few
    records. Reading a slice waits for the disk, as sendfile does."""
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
