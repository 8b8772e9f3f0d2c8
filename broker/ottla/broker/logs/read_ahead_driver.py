"""Loads ranges of logs into the page cache on the worker threads of the log directories."""

import errno

import trio

from ottla.broker.logs.cold_reads import Done
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.part_registry import PartRegistry
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.disk.slice import FileSlice


class ReadAheads:
    """Loads ranges of logs into the page cache, each in a separate task. Ranges are loaded only
    while the method `run` is running."""

    def __init__(self, disk: Disk, errors: UnexpectedErrors) -> None:
        self._disk = disk
        self._errors = errors
        self._nursery: trio.Nursery | None = None

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task that loads ranges into the page cache."""
        parts.task("read-ahead", self.run)

    async def run(self) -> None:
        """Load requested ranges of logs into the page cache until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def bring_in(self, piece: FileSlice, done: Done) -> bool:
        """Start to load a range of a log into the page cache, and call `done` on the event loop
        when the load has ended. Always returns False, because the range is not loaded yet."""
        if self._nursery is None:
            done(_not_begun(piece))
        else:
            self._nursery.start_soon(self._bring_in, piece, done)
        return False

    async def _bring_in(self, piece: FileSlice, done: Done) -> None:
        error: OSError | None = _not_begun(piece)
        try:
            await self._disk.read_ahead(piece.file, piece.position, piece.length)
            error = None
        except OSError as failure:
            error = failure
        except Exception as fault:
            self._errors.note("read ahead", piece.file.path, fault)
        finally:  # Also on cancellation: a range that is not removed would never be loaded again.
            self._report(piece, done, error)

    def _report(self, piece: FileSlice, done: Done, error: OSError | None) -> None:
        try:
            done(error)
        except Exception as fault:
            self._errors.note("read ahead", piece.file.path, fault)


def _not_begun(piece: FileSlice) -> OSError:
    """Return the error for a load into the page cache that could not start. The error does not mark
    the disk as failed, because the lack of a worker thread is temporary."""
    return OSError(errno.ENOMEM, "no worker can load the range now", piece.file.path)
