"""Many records of one partition, encoded as batches take them: for writers that have whole columns.

Pure.  The producer decides how much of a run a batch takes; the run encodes that much.
"""

from typing import NamedTuple, Protocol

from ottla.wire.batch import Buffer


class TakenRecords(NamedTuple):
    """Records as they stand in a batch."""

    body: Buffer
    record_count: int


class RecordRun(Protocol):
    """Records that have one timestamp, in the order in which they are written."""

    @property
    def next_bytes(self) -> int:
        """The most that the next record takes; 0 where none is left."""

    @property
    def largest_bytes(self) -> int:
        """The most that any of the records takes."""

    def take(self, room_bytes: int, first_delta: int, timestamp_delta: int) -> TakenRecords:
        """Encode as many records as fit into this room, at least one.

        `first_delta` is the offset of the first in its batch, `timestamp_delta` the distance of
        their timestamp from the batch's.
        """
