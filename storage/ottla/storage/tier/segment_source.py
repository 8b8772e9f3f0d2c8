"""Interface of a closed segment of a local log, as its upload to an object store reads it.

The log implements it (`Log.segment_source`), and keeps the segment's files readable while the
source is open, even if the log deletes the segment. All methods that read files are awaited, and
read in worker threads. They raise OSError if the disk fails.
"""

from collections.abc import Sequence
from typing import Protocol

from ottla.model.ids import Offset
from ottla.storage.segments.epoch_cache import EpochEntry


class SegmentSource(Protocol):
    """A closed segment whose records are all committed, so that neither they nor the indexes
    change."""

    @property
    def base_offset(self) -> Offset:
        """Base offset of the segment."""
        ...

    @property
    def end_offset(self) -> Offset:
        """End of the segment, exclusive: the base offset of the next segment."""
        ...

    @property
    def size_bytes(self) -> int:
        """Size of the segment's `.log` file in bytes."""
        ...

    @property
    def max_timestamp_ms(self) -> int:
        """Largest timestamp of the segment's records, or -1 if they have none."""
        ...

    @property
    def epochs(self) -> Sequence[EpochEntry]:
        """Leader epochs of the log from its start up to the end of the segment, oldest first. They
        include those that ended before the segment."""
        ...

    async def read_log(self, start: int, end: int) -> bytes:
        """Return the bytes `[start, end)` of the `.log` file. The range is not empty, and within
        the file."""
        ...

    async def offset_index(self) -> bytes:
        """Return the content of the `.index` file: only its entries."""
        ...

    async def time_index(self) -> bytes:
        """Return the content of the `.timeindex` file: only its entries."""
        ...

    async def transaction_index(self) -> bytes:
        """Return the content of the `.txnindex` file, empty if no transaction was aborted in the
        segment."""
        ...

    async def producer_snapshot(self) -> bytes:
        """Return the state of the log's producers at the end of the segment, in the format of a
        `.snapshot` file. If the log has no such file, the state is computed."""
        ...
