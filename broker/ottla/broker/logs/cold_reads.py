"""Tracks file ranges that are being loaded into the page cache, for fetches whose records are not
cached.

Pure; the function that loads a range is a parameter. The event loop never waits for a disk. A fetch
whose records are not in the page cache starts a load and reads its other partitions. When the load
is done, the fetch is read again. A disk that hangs therefore delays only its own partitions.

If a reader had to wait once and then reads sequentially, the following bytes are loaded in advance,
until the end of the file. A reader is identified by its position in the file, since many clients
fetch without a session.
"""

from collections.abc import Callable, Hashable
from functools import partial

from ottla.broker.replicas.partition import Partition
from ottla.model.errors import RefusedError
from ottla.storage.disk.disk_errors import DiskError, meaning_of
from ottla.storage.disk.disk_seam import DiskFile, NotCachedError
from ottla.storage.disk.slice import FileSlice
from ottla.storage.log.log import Log

RANGES_PER_PARTITION_MAX = 8
"""Maximum number of file ranges of one partition that are loaded into the page cache at the same
time. With a smaller value, readers at different positions wait for each other. With a larger value,
one client can keep a disk busy with ranges that it never reads."""

AHEAD_BYTES = 2 << 20
"""Number of bytes of a log file that are loaded in advance for a client that reads sequentially.
With a smaller value, the reader waits for the disk between two fetches. A larger value takes memory
from other readers."""

READERS_PER_FILE_MAX = 8
FILES_READ_MAX = 256
"""Maximum number of tracked sequential readers of one log file, and maximum number of files with
such readers. A smaller value makes more readers wait at each fetch. A larger value keeps entries of
readers that stopped long ago."""

Done = Callable[[OSError | None], None]
BringIn = Callable[[FileSlice, Done], bool]
"""Function that loads a file range into the page cache, and then calls back. If the range is cached
already, it returns True and does not call back."""


class ColdReader:
    """Sequential reader of a log file: its position, and the end of the range that was loaded in
    advance for it."""

    __slots__ = ("ahead_to", "position")

    def __init__(self, position: int, ahead_to: int) -> None:
        self.position = position
        self.ahead_to = ahead_to


class ColdReads:
    """Ranges of log files that are being loaded into the page cache, by partition, and the fetches
    that wait for these ranges."""

    __slots__ = ("_begin", "_coming", "_wake", "readers")

    def __init__(self, begin: BringIn, wake: Callable[[Hashable], object]) -> None:
        self._begin = begin
        self._wake = wake
        self._coming: dict[Partition, set[tuple[str, int]]] = {}
        self.readers: dict[str, list[ColdReader]] = {}
        """Sequential readers of log files, by file path. The path with the most recently tracked
        reader is the last."""

    @property
    def range_count(self) -> int:
        """Number of file ranges that are being loaded into the page cache."""
        return sum(len(ranges) for ranges in self._coming.values())

    def bring_in(self, partition: Partition, missing: NotCachedError) -> bool:
        """Start to load a range of a partition's log that is not in the page cache. Returns True if
        the range is cached in the meantime and can be read at once. Returns False if the fetch must
        wait for the load."""
        coming = self._coming.setdefault(partition, set())
        key = (missing.file.path, missing.position)
        if key in coming or len(coming) >= RANGES_PER_PARTITION_MAX:
            return False  # The first load to finish wakes the waiting fetches.
        self._follow(missing)
        coming.add(key)
        piece = FileSlice(missing.file, missing.position, missing.size)
        is_here = self._begin(piece, partial(self._on_done, partition, partition.log, key))
        if is_here:
            self._forget(partition, key)
        return is_here

    def note_read(self, partition: Partition, piece: FileSlice) -> None:
        """Load the bytes after a slice of a log file in advance, if the slice's reader has waited
        before and reads sequentially."""
        if not self.readers:
            return  # the usual case
        for reader in self.readers.get(piece.file.path, []):
            if reader.position <= piece.position <= reader.ahead_to:
                reader.position = piece.position
                if reader.ahead_to < piece.position + piece.length + AHEAD_BYTES:
                    self._read_ahead(partition, reader, piece.file)
                return

    def _read_ahead(self, partition: Partition, reader: ColdReader, file: DiskFile) -> None:
        begin = reader.ahead_to
        size = min(AHEAD_BYTES, file.size_bytes - begin)
        if size <= 0:
            self._untrack(file.path, reader)
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

    def _untrack(self, path: str, reader: ColdReader) -> None:
        """Stop tracking a sequential reader for which the rest of the file is loaded. Bytes that
        are appended later need no load, because an append writes them to the page cache."""
        readers = self.readers[path]
        readers.remove(reader)
        if not readers:
            del self.readers[path]

    def _on_ahead(self, partition: Partition, key: tuple[str, int], _: OSError | None) -> None:
        self._forget(partition, key)  # The read itself will report an error.

    def _follow(self, missing: NotCachedError) -> None:
        path, position = missing.file.path, missing.position
        readers = self.readers.pop(path, [])
        # A reader that waits again within the range loaded for it is the same reader.
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
                    return  # A temporary shortage, such as of workers. The next fetch tries again.
        self._wake(partition.high_watermark_key)
        self._wake(partition.end_offset_key)

    def _forget(self, partition: Partition, key: tuple[str, int]) -> None:
        coming = self._coming[partition]
        coming.discard(key)
        if not coming:
            del self._coming[partition]
