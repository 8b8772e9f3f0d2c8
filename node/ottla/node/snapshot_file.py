"""A whole snapshot as bytes: raft's opening, the records of an image, raft's footer (KIP-630).

Pure.  The batches are numbered from 0 and belong to the epoch of the snapshot's end.
"""

from collections.abc import Iterable, Iterator

from ottla.metadata.records import Record
from ottla.model.ids import Offset, OffsetAndEpoch
from ottla.model.values import frozen
from ottla.node.record_batches import snapshot_data_batches
from ottla.raft.snapshot import footer_batch, opening_batch
from ottla.raft.voters import VoterSet
from ottla.wire.batch import parse_header


@frozen(kw_only=True)
class SnapshotFile:
    """What is known of a snapshot besides its records."""

    id: OffsetAndEpoch
    last_contained_timestamp_ms: int
    """Of the last record of the log that the snapshot stands for, and of all that it holds.

    No clock is read here: every replica writes the same bytes for the same id.
    """
    voters: VoterSet | None
    """None where the set is known from settings only."""

    def batches(self, records: Iterable[Record]) -> Iterator[bytes]:
        """Yield the file, one batch at a time."""
        opening = opening_batch(
            self.voters,
            last_contained_timestamp_ms=self.last_contained_timestamp_ms,
            leader_epoch=self.id.epoch,
        )
        yield opening
        end_offset = parse_header(opening).end_offset
        for batch in self._data(records, end_offset):
            yield batch
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
