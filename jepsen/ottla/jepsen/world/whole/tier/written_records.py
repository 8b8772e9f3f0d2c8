"""All records that the leaders of a run have written, by offset and leader epoch. The module is
pure.

A leader epoch has one leader. So two records with the same offset and leader epoch are equal, in
all logs and in all copied segments.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.jepsen.world.violation import Violation
from ottla.model.ids import Epoch, Offset, TopicIdPartition
from ottla.wire.batch import batches
from ottla.wire.records import scan

Buffer = bytes | bytearray | memoryview


class EpochRecord(NamedTuple):
    """A record that a leader has written, with the leader's epoch."""

    value: bytes
    timestamp_ms: int
    size_bytes: int
    """Size in bytes of the record's batch, divided by the number of its records."""


class WrittenRecords:
    """The records that leaders have written, by partition, offset and leader epoch.

    Invariants: OneRecordPerEpoch (a record with an offset and leader epoch never changes).
    """

    def __init__(self) -> None:
        self._records: dict[TopicIdPartition, dict[tuple[int, int], EpochRecord]] = {}

    def learn(self, at: TopicIdPartition, data: Buffer, *, place: str) -> list[tuple[int, int]]:
        """Add the records of batches that were found at `place`. Returns the offset and leader
        epoch of each record. Raises Violation if a record that was added before with the same
        offset and epoch differs."""
        known = self._records.setdefault(at, {})
        found: list[tuple[int, int]] = []
        for position, header in batches(data, is_partial_end_allowed=True):
            epoch = header.partition_leader_epoch
            size = header.size_bytes // max(1, header.record_count)
            for record in scan(data, position, header):
                key = (int(record.offset), int(epoch))
                written = EpochRecord(record.value or b"", record.timestamp_ms, size)
                self._add(known, key, written, place)
                found.append(key)
        return found

    def check(self, at: TopicIdPartition, offset: Offset, epoch: Epoch, value: bytes) -> None:
        """Check a record that a consumer has read. Raises Violation if the record that was written
        with this offset and leader epoch has another value."""
        written = self._records.get(at, {}).get((offset, epoch))
        if written is not None and written.value != value:
            raise Violation(
                "OneRecordPerEpoch",
                f"{at}: a consumer read {value!r} at {offset} of epoch {epoch}, and"
                f" {written.value!r} was written",
            )

    def get(self, at: TopicIdPartition, offset: int, epoch: int) -> EpochRecord | None:
        """Return the record with this offset and leader epoch, or None if it is unknown."""
        return self._records.get(at, {}).get((offset, epoch))

    def between(
        self, at: TopicIdPartition, ranges: Sequence[tuple[int, int, int]]
    ) -> Iterator[tuple[int, EpochRecord]]:
        """Yield the known records of a log with their offsets. `ranges` are its leader epochs, each
        as epoch, first offset and end offset."""
        known = self._records.get(at, {})
        for epoch, start, end in ranges:
            for offset in range(start, end):
                written = known.get((offset, epoch))
                if written is not None:
                    yield offset, written

    def _add(
        self,
        known: dict[tuple[int, int], EpochRecord],
        key: tuple[int, int],
        written: EpochRecord,
        place: str,
    ) -> None:
        before = known.setdefault(key, written)
        if before.value != written.value:
            raise Violation(
                "OneRecordPerEpoch",
                f"{place} has {written.value!r} at {key[0]} of epoch {key[1]}, and"
                f" {before.value!r} was written",
            )
