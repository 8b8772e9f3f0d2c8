"""Division of offset ranges into parts that workers read from copied segments, and parts that they
read from brokers. Pure.

A copied segment may contain records that the log lost in an unclean leader election. So a part is
read from a segment only up to the end that the segment's lineage shares with the leader's log.

With read_committed, a reader must know which transactions were aborted. The entry of a transaction
is in the segment that contains its end, which may be a later one. So the part of a segment needs
all segments up to the first one at whose end no transaction is open that began in the part.
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
    """Search for the end of the records that an uploaded log shares with the log of the leader.

    The leader is asked for the end of a leader epoch, from the newest epoch of the uploaded log
    downwards. Two logs that have a record with the same offset and epoch are equal up to it.
    """

    def __init__(self, log: StoredPartition) -> None:
        self._lineage = Lineage(
            log.epochs, start_offset=log.start_offset, end_offset=log.end_offset
        )
        self.epoch: Epoch | None = log.epochs[-1].epoch
        """Leader epoch to ask for next, or None once the end is known."""
        self.end_offset = NOT_SHARED
        """End of the shared records, exclusive; 0 if there are none."""

    def on_answer(self, found: OffsetAndEpoch) -> None:
        """Accept the leader's answer: the largest leader epoch of its log that is not above the
        asked one, and the end of that epoch."""
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
    """Return the parts of an offset range, in order. A part has a `copy` if a copied segment has
    its records.

    `aborted_in` has the result of `segments_with_aborts` for each segment, or None for
    read_uncommitted.
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
    transactions of its records, or None if they are not all copied.

    `open_since` has the first offset of the transactions that are open at the end of a segment, or
    None if none is open. A segment that it lacks ends in an unknown state.
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
