"""Brings ranges of logs into memory on the workers of their directories."""

import errno

import trio

from ottla.broker.logs.cold_reads import Done
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.disk_seam import Disk
from ottla.storage.slice import FileSlice


class ReadAheads:
    """The tasks that wait for disks; run `run` in a task."""

    def __init__(self, disk: Disk, errors: UnexpectedErrors) -> None:
        self._disk = disk
        self._errors = errors
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def bring_in(self, piece: FileSlice, done: Done) -> bool:
        """Bring a range in and call back on the loop; return False, for that takes a while."""
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
        finally:  # also when it is cancelled: what is not forgotten is never asked for again
            self._report(piece, done, error)

    def _report(self, piece: FileSlice, done: Done, error: OSError | None) -> None:
        try:
            done(error)
        except Exception as fault:
            self._errors.note("read ahead", piece.file.path, fault)


def _not_begun(piece: FileSlice) -> OSError:
    """Return an error that says nothing of the disk: the want of a worker passes."""
    return OSError(errno.ENOMEM, "nothing is brought in now", piece.file.path)
