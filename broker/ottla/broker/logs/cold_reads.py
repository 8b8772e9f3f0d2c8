"""Ranges of logs on their way into memory, for fetches that read again once they are here.

Pure; what acts is handed in.  The loop never waits for a disk: a fetch that meets what is not in
memory has it brought in, takes what its other partitions have, and is woken when it is here.  So a
disk that hangs delays its own partitions alone.
"""

from collections.abc import Callable, Hashable
from functools import partial

from ottla.broker.replicas.partition import Partition
from ottla.model.errors import RefusedError
from ottla.storage.disk_errors import DiskError, meaning_of
from ottla.storage.disk_seam import NotCachedError
from ottla.storage.log import Log
from ottla.storage.slice import FileSlice

RANGES_PER_PARTITION_MAX = 8
"""Ranges of one partition that are brought in at once.  Fewer lets readers of different places wait
for each other, more lets one client keep a disk busy with what it does not read."""

Done = Callable[[OSError | None], None]
BringIn = Callable[[FileSlice, Done], bool]
"""Has a range brought into memory and calls back then; True if it is here already, uncalled."""


class ColdReads:
    """What is being brought in, by partition."""

    __slots__ = ("_begin", "_coming", "_wake")

    def __init__(self, begin: BringIn, wake: Callable[[Hashable], object]) -> None:
        self._begin = begin
        self._wake = wake
        self._coming: dict[Partition, set[tuple[str, int]]] = {}

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
        coming.add(key)
        piece = FileSlice(missing.file, missing.position, missing.size)
        is_here = self._begin(piece, partial(self._on_done, partition, partition.log, key))
        if is_here:
            self._forget(partition, key)
        return is_here

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
