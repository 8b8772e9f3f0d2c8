"""Builds the contents of a snapshot file: raft's header batch, the records of an image, raft's
footer batch (KIP-630).

Pure. The offsets of the batches start at 0. Their epoch is the epoch in the snapshot id.
"""

from collections.abc import Iterable, Iterator

from ottla.metadata.records import Record
from ottla.model.ids import Offset, OffsetAndEpoch
from ottla.model.values import frozen
from ottla.node.quorum.record_batches import snapshot_data_batches
from ottla.raft.snapshot import footer_batch, opening_batch
from ottla.raft.voters import VoterSet
from ottla.wire.batch import parse_header


@frozen(kw_only=True)
class SnapshotFile:
    """Properties of a metadata snapshot file other than its records."""

    id: OffsetAndEpoch
    last_contained_timestamp_ms: int
    """Timestamp, in ms since 1970, of the last log record that the snapshot contains. It is used
    for all batches of the snapshot.

    The current time is not used, so that every replica writes the same bytes for the same snapshot
    id.
    """
    voters: VoterSet | None
    """Voters of the quorum to write into the snapshot. None if the voters are known only from
    settings."""

    def batches(self, records: Iterable[Record]) -> Iterator[bytes]:
        """Yield the contents of the snapshot file, one batch at a time. Yields b"" where other
        tasks may run before the next batch is complete."""
        opening = opening_batch(
            self.voters,
            last_contained_timestamp_ms=self.last_contained_timestamp_ms,
            leader_epoch=self.id.epoch,
        )
        yield opening
        end_offset = parse_header(opening).end_offset
        for batch in self._data(records, end_offset):
            yield batch
            if batch:
                end_offset = parse_header(batch).end_offset
        yield footer_batch(
            base_offset=end_offset,
            timestamp_ms=self.last_contained_timestamp_ms,
            leader_epoch=self.id.epoch,
        )

    def _data(self, records: Iterable[Record], base_offset: Offset) -> Iterator[bytes]:
        return snapshot_data_batches(
            records,
            timestamp_ms=self.last_contained_timestamp_ms,
            epoch=self.id.epoch,
            base_offset=base_offset,
        )
