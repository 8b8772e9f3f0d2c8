"""Interface with which an upload to an object store reads a closed segment of a local log.

The log implements the interface (`Log.segment_source`). The segment's files stay readable while the
source is open, even if the log deletes the segment. All methods that read files are coroutines,
read in worker threads and raise OSError if the disk fails.
"""

from collections.abc import Sequence
from typing import Protocol

from ottla.model.ids import Offset
from ottla.storage.segments.epoch_cache import EpochEntry


class SegmentSource(Protocol):
    """Interface of a closed segment that is uploaded. All of its records are committed, so the
    records and the indexes do not change."""

    @property
    def base_offset(self) -> Offset:
        """Base offset of the segment."""
        ...

    @property
    def end_offset(self) -> Offset:
        """Offset after the segment's last record: the base offset of the next segment."""
        ...

    @property
    def size_bytes(self) -> int:
        """Size of the segment's `.log` file in bytes."""
        ...

    @property
    def max_timestamp_ms(self) -> int:
        """Largest timestamp of the segment's records, in ms since 1970, or -1 if they have none."""
        ...

    @property
    def epochs(self) -> Sequence[EpochEntry]:
        """Leader epochs of the log, from its start up to the end of the segment, oldest first.
        Epochs that ended before the segment are included."""
        ...

    async def read_log(self, start: int, end: int) -> bytes:
        """Return the bytes `[start, end)` of the segment's `.log` file. The range must not be
        empty, and must be within the file."""
        ...

    async def offset_index(self) -> bytes:
        """Return the entries of the segment's offset index (the `.index` file), without unused
        space at its end."""
        ...

    async def time_index(self) -> bytes:
        """Return the entries of the segment's time index (the `.timeindex` file), without unused
        space at its end."""
        ...

    async def transaction_index(self) -> bytes:
        """Return the content of the segment's transaction index (the `.txnindex` file). It is empty
        if no transaction was aborted in the segment."""
        ...

    async def producer_snapshot(self) -> bytes:
        """Return the state of the log's producers at the end of the segment, in the format of a
        `.snapshot` file. If the log has no such file, the state is computed."""
        ...
