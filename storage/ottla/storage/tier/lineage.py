"""Lineage of a log: the leader epochs of its records, compared with those of copied segments. Pure.

A leader epoch has one leader, so that two records with the same offset and leader epoch are equal.
After an unclean leader election, a copied segment may contain records that are not in the log.
Their leader epochs then differ from those in the log.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from ottla.model.ids import NO_EPOCH, Epoch, Offset
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.tier.remote_segment import RemoteSegment


def epochs_with_records(
    entries: Sequence[EpochEntry], *, start_offset: Offset, end_offset: Offset
) -> tuple[EpochEntry, ...]:
    """Return the leader epochs with records in `[start_offset, end_offset)`. Each epoch is paired
    with the offset of its first record in this range."""
    found: list[EpochEntry] = []
    for index, entry in enumerate(entries):
        following = entries[index + 1].start_offset if index + 1 < len(entries) else end_offset
        first = max(entry.start_offset, start_offset)
        if first < min(following, end_offset):
            found.append(EpochEntry(entry.epoch, Offset(first)))
    return tuple(found)


class Lineage:
    """Leader epochs of all records of a log, local and copied, from the log start offset on.
    `entries` are the entries of the log's epoch cache."""

    __slots__ = ("_starts", "end_offset", "entries", "start_offset")

    def __init__(
        self, entries: Sequence[EpochEntry], *, start_offset: Offset, end_offset: Offset
    ) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.entries = epochs_with_records(
            entries, start_offset=start_offset, end_offset=end_offset
        )
        """Leader epochs that have records in the log, oldest first."""
        self._starts = [entry.start_offset for entry in self.entries]

    def epoch_of(self, offset: Offset) -> Epoch:
        """Return the leader epoch of the log's record at an offset. Returns -1 if the log has no
        such record, or if the record's epoch is unknown."""
        at = bisect_right(self._starts, offset) - 1
        return self.entries[at].epoch if at >= 0 and offset < self.end_offset else NO_EPOCH

    def ranges(self) -> Iterator[tuple[EpochEntry, Offset]]:
        """Yield each leader epoch that has records in the log, with the offset after its last
        record."""
        for index, entry in enumerate(self.entries):
            last = index + 1 == len(self.entries)
            yield entry, self.end_offset if last else self.entries[index + 1].start_offset

    def contains(self, segment: RemoteSegment) -> bool:
        """Return whether the log contains the same records as a copied segment, with the same
        leader epochs. Records below the log start offset are ignored. Returns False if no other
        records remain.

        Kafka compares the lists of epochs (RemoteLogManager.isRemoteSegmentWithinLeaderEpochs) and
        accepts some segments whose oldest records have an epoch of another lineage.
        """
        start = max(segment.start_offset, self.start_offset)
        end = Offset(segment.end_offset + 1)
        if not start < end <= self.end_offset:
            return False
        theirs = epochs_with_records(segment.leader_epochs, start_offset=start, end_offset=end)
        return theirs == epochs_with_records(self.entries, start_offset=start, end_offset=end)

    def shared_end_offset(self, segment: RemoteSegment, offset: Offset) -> Offset:
        """Return the end (exclusive) of the range from `offset` on in which a copied segment has
        the same records as the log. A reader of the segment must stop there.

        Returns `offset` itself if the record at `offset` already differs.
        """
        while offset <= segment.end_offset:
            epoch = self.epoch_of(offset)
            if epoch == NO_EPOCH or epoch != _epoch_in(segment, offset):
                break
            end_here = next(end for entry, end in self.ranges() if entry.epoch == epoch)
            offset = min(end_here, Offset(segment.end_offset_of(epoch) + 1))
        return offset


def _epoch_in(segment: RemoteSegment, offset: Offset) -> Epoch:
    """Return the leader epoch of the record at an offset in a copied segment, or -1 if it is
    unknown."""
    found = NO_EPOCH
    for entry in segment.leader_epochs:
        if entry.start_offset <= offset:
            found = entry.epoch
    return found
