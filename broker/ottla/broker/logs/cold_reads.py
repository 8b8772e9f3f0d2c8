"""Ranges of logs on their way into memory, for fetches that read again once they are here.

Pure; what acts is handed in.  The loop never waits for a disk: a fetch that meets what is not in
memory has it brought in, takes what its other partitions have, and is woken when it is here.  So a
disk that hangs delays its own partitions alone.

Who had to wait once and then reads on in order finds what follows brought in ahead of it, until all
of the file is here.  Such a reader is known by where it reads, for many clients fetch without a
session.
"""

from collections.abc import Callable, Hashable
from functools import partial

from ottla.broker.replicas.partition import Partition
from ottla.model.errors import RefusedError
from ottla.storage.disk_errors import DiskError, meaning_of
from ottla.storage.disk_seam import DiskFile, NotCachedError
from ottla.storage.log import Log
from ottla.storage.slice import FileSlice

RANGES_PER_PARTITION_MAX = 8
"""Ranges of one partition that are brought in at once.  Fewer lets readers of different places wait
for each other, more lets one client keep a disk busy with what it does not read."""

AHEAD_BYTES = 2 << 20
"""How far a reader that goes on in order is kept ahead of.  Less lets it wait for the disk between
two fetches, more takes memory that others would have used."""

READERS_PER_FILE_MAX = 8
FILES_READ_MAX = 256
"""Readers of one file, and files, that are followed.  Fewer lets more readers wait for each fetch,
more keeps in mind who stopped reading long ago."""

Done = Callable[[OSError | None], None]
BringIn = Callable[[FileSlice, Done], bool]
"""Has a range brought into memory and calls back then; True if it is here already, uncalled."""


class ColdReader:
    """One who reads a file in order: where it reads, and up to where that is brought in."""

    __slots__ = ("ahead_to", "position")

    def __init__(self, position: int, ahead_to: int) -> None:
        self.position = position
        self.ahead_to = ahead_to


class ColdReads:
    """What is being brought in, by partition."""

    __slots__ = ("_begin", "_coming", "_wake", "readers")

    def __init__(self, begin: BringIn, wake: Callable[[Hashable], object]) -> None:
        self._begin = begin
        self._wake = wake
        self._coming: dict[Partition, set[tuple[str, int]]] = {}
        self.readers: dict[str, list[ColdReader]] = {}
        """By path, those that were followed last at the end."""

    @property
    def range_count(self) -> int:
        """Number of ranges that are being brought in."""
        return sum(len(ranges) for ranges in self._coming.values())

    def bring_in(self, partition: Partition, missing: NotCachedError) -> bool:
        """Have a range brought in; return whether it is here already, so that it can be read."""
        coming = self._coming.setdefault(partition, set())
        key = (missing.file.path, missing.position)
        if key in coming or len(coming) >= RANGES_PER_PARTITION_MAX:
            return False  # whichever comes first wakes those that wait
        self._follow(missing)
        coming.add(key)
        piece = FileSlice(missing.file, missing.position, missing.size)
        is_here = self._begin(piece, partial(self._on_done, partition, partition.log, key))
        if is_here:
            self._forget(partition, key)
        return is_here

    def note_read(self, partition: Partition, piece: FileSlice) -> None:
        """Have what follows a slice brought in, if its reader had to wait before and goes on."""
        path = piece.file.path
        readers = self.readers.get(path, [])
        for reader in readers:
            if reader.position <= piece.position <= reader.ahead_to:
                reader.position = piece.position
                if reader.ahead_to < piece.position + piece.length + AHEAD_BYTES:
                    self._read_ahead(partition, reader, piece.file)
                return

    def _read_ahead(self, partition: Partition, reader: ColdReader, file: DiskFile) -> None:
        begin = reader.ahead_to
        size = min(AHEAD_BYTES, file.size_bytes - begin)
        if size <= 0:
            self._part_from(file.path, reader)
            return
        coming = self._coming.setdefault(partition, set())
        key = (file.path, begin)
        if key in coming or len(coming) >= RANGES_PER_PARTITION_MAX:
            if not coming:
                del self._coming[partition]
            return
        reader.ahead_to = begin + size
        coming.add(key)
        if self._begin(FileSlice(file, begin, size), partial(self._on_ahead, partition, key)):
            self._forget(partition, key)

    def _part_from(self, path: str, reader: ColdReader) -> None:
        """Follow a reader no longer for whom all of the file is here: what is written now is."""
        readers = self.readers[path]
        readers.remove(reader)
        if not readers:
            del self.readers[path]

    def _on_ahead(self, partition: Partition, key: tuple[str, int], _: OSError | None) -> None:
        self._forget(partition, key)  # an error is for the read to meet

    def _follow(self, missing: NotCachedError) -> None:
        path, position = missing.file.path, missing.position
        readers = self.readers.pop(path, [])
        # One that waits again, at a place that was brought in for it, is the same.
        readers = [each for each in readers if not each.position <= position <= each.ahead_to]
        self.readers[path] = readers[1 - READERS_PER_FILE_MAX :]
        self.readers[path].append(ColdReader(position, position + missing.size))
        if len(self.readers) > FILES_READ_MAX:
            del self.readers[next(iter(self.readers))]

    def _on_done(
        self, partition: Partition, log: Log | None, key: tuple[str, int], error: OSError | None
    ) -> None:
        self._forget(partition, key)
        if error is not None and log is not None and partition.log is log:
            try:
                log.refuse_slice(error)
            except RefusedError:
                if meaning_of(error) not in (DiskError.FAILURE, DiskError.CLOSED):
                    return  # a want that passes: the next fetch tries again
        self._wake(partition.high_watermark_key)
        self._wake(partition.end_offset_key)

    def _forget(self, partition: Partition, key: tuple[str, int]) -> None:
        coming = self._coming[partition]
        coming.discard(key)
        if not coming:
            del self._coming[partition]
