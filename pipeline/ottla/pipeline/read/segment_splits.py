"""Divides offset ranges into parts that Spark's workers read from copied segments, and parts that
the workers read from brokers. Pure.

A copied segment may contain records that the log has lost in an unclean leader election. A segment
is therefore read only as far as its leader epochs are the same as those in the leader's log.

With read_committed, a reader must know the aborted transactions. The index entry of a transaction
is in the segment that contains the transaction's end, which may be a later segment. A part
therefore needs all segments up to the first one at whose end all transactions of the part have
ended.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

from ottla.model.ids import Epoch, Offset, OffsetAndEpoch
from ottla.pipeline.read.ranges import OffsetRange, SegmentCopy
from ottla.storage.tier.lineage import Lineage
from ottla.storage.tier.remote_segment import RemoteSegment
from ottla.storage.tier.stored_partition import Piece, StoredPartition

NOT_SHARED = Offset(0)


class SharedEnd:
    """Search for the end offset of the records that are the same in the copied log and in the
    leader's log.

    The search requests from the leader the end of a leader epoch: first of the newest epoch in the
    copied log, then of earlier epochs. If two logs have a record with the same offset and leader
    epoch, they are equal up to this record.
    """

    def __init__(self, log: StoredPartition) -> None:
        self._lineage = Lineage(
            log.epochs, start_offset=log.start_offset, end_offset=log.end_offset
        )
        self.epoch: Epoch | None = log.epochs[-1].epoch
        """Leader epoch to ask the leader for next, or None once the end is known."""
        self.end_offset = NOT_SHARED
        """Offset after the last record that is in both logs, or 0 if the logs share no record."""

    def on_answer(self, found: OffsetAndEpoch) -> None:
        """Process the leader's answer: the largest leader epoch in its log that is not above
        `epoch`, and the end offset of that epoch."""
        assert self.epoch is not None
        self.epoch = None
        below = [row for row in self._lineage.ranges() if row[0].epoch <= found.epoch]
        if not below:
            return
        entry, end_offset = below[-1]
        if entry.epoch == found.epoch:
            self.end_offset = min(end_offset, found.offset)
        else:
            self.epoch = entry.epoch


def split_range(
    wanted: OffsetRange,
    cluster_id: str,
    log: StoredPartition,
    *,
    shared_end: Offset,
    aborted_in: Mapping[UUID, tuple[RemoteSegment, ...] | None] | None,
) -> list[OffsetRange]:
    """Divide an offset range into parts, and return them in order. A part has a `copy` if a copied
    segment contains its records.

    `aborted_in` is the result of `segments_with_aborts`, or None for read_uncommitted.
    """
    parts: list[OffsetRange] = []
    at = wanted.start
    for piece in log.pieces:
        start = max(piece.start_offset, at)
        end = min(piece.end_offset, shared_end, wanted.end)
        aborts = () if aborted_in is None else aborted_in.get(piece.manifest.segment_id)
        if start >= end or aborts is None:
            continue
        if at < start:
            parts.append(wanted._replace(start=at, end=start))
        copy = SegmentCopy(cluster_id, piece.manifest.remote_segment, aborts)
        parts.append(wanted._replace(start=start, end=end, copy=copy))
        at = end
    if at < wanted.end:
        parts.append(wanted._replace(start=at))
    return parts


def segments_with_aborts(
    pieces: Sequence[Piece], open_since: Mapping[UUID, Offset | None]
) -> dict[UUID, tuple[RemoteSegment, ...] | None]:
    """Return, for each segment, the segments whose transaction indexes list the aborted
    transactions of its records, or None if not all of them are copied.

    `open_since` contains, for each segment, the first offset of the transactions that are open at
    its end, or None if none is open. If a segment is missing in it, its open transactions are
    unknown.
    """
    found: dict[UUID, tuple[RemoteSegment, ...] | None] = {}
    for index, piece in enumerate(pieces):
        found[piece.manifest.segment_id] = None
        end = piece.end_offset
        segments: list[RemoteSegment] = []
        for later in pieces[index:]:
            is_next = later is piece or later.start_offset == end
            if not is_next or later.manifest.segment_id not in open_since:
                break
            end = later.end_offset
            if not later.manifest.has_empty_transaction_index:
                segments.append(later.manifest.remote_segment)
            first_open = open_since[later.manifest.segment_id]
            if first_open is None or first_open >= piece.end_offset:
                found[piece.manifest.segment_id] = tuple(segments)
                break
    return found
