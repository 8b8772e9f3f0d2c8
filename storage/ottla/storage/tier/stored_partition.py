"""Log of a partition, reconstructed from the uploaded segments in a bucket. Pure.

Segments in a bucket may overlap: a deposed leader may have uploaded some, an upload may have been
repeated, and an unclean leader election may have removed records that were already uploaded. The
log follows the lineage (the series of leader epochs) that ends in the newest leader epoch. This
lineage is stored in the indexes of the log's last segment.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from ottla.model.ids import Offset
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.tier.lineage import Lineage
from ottla.storage.tier.manifest import SegmentManifest
from ottla.storage.tier.remote_metadata import RemoteMetadata
from ottla.storage.tier.remote_segment import (
    RemoteSegmentId,
    RemoteSegmentState,
    RemoteSegmentUpdate,
)


class Piece(NamedTuple):
    """The records `[start_offset, end_offset)` of a log, as part of one uploaded segment."""

    manifest: SegmentManifest
    start_offset: Offset
    end_offset: Offset

    @property
    def is_whole(self) -> bool:
        """True if the piece contains all records of its segment."""
        return (self.start_offset, self.end_offset) == (
            self.manifest.start_offset,
            self.manifest.end_offset + 1,
        )


class StoredPartition(NamedTuple):
    """Log of one partition, reconstructed from the segments in a bucket."""

    pieces: tuple[Piece, ...]
    """Pieces of the log, in the order of their offsets. There may be gaps between them."""
    epochs: tuple[EpochEntry, ...]
    """Leader epochs of the log from its start on."""
    unused: tuple[SegmentManifest, ...]
    """Uploaded segments from which the log takes no records."""

    @property
    def start_offset(self) -> Offset:
        """First offset of the log."""
        return self.pieces[0].start_offset

    @property
    def end_offset(self) -> Offset:
        """Offset after the last record of the log."""
        return self.pieces[-1].end_offset

    @property
    def gaps(self) -> tuple[tuple[Offset, Offset], ...]:
        """Ranges `[start, end)` of offsets that no segment contains."""
        return tuple(
            (one.end_offset, following.start_offset)
            for one, following in pairwise(self.pieces)
            if one.end_offset < following.start_offset
        )

    def after_last_gap(self) -> "StoredPartition":
        """Return the part of the log after its last gap, or the whole log if the log has no gap."""
        if not self.gaps:
            return self
        start = self.gaps[-1][1]
        pieces = tuple(one for one in self.pieces if one.start_offset >= start)
        lineage = Lineage(self.epochs, start_offset=start, end_offset=self.end_offset)
        dropped = (one.manifest for one in self.pieces if one.start_offset < start)
        kept = {one.manifest.segment_id for one in pieces}
        unused = (*self.unused, *(one for one in dropped if one.segment_id not in kept))
        return StoredPartition(pieces, lineage.entries, unused)


def newest_segment(manifests: Iterable[SegmentManifest]) -> SegmentManifest:
    """Return the last segment of a partition's log: the segment with the highest end offset among
    those with the newest leader epoch.

    A deposed leader cannot have uploaded this segment, because each new leader has a higher epoch.
    """
    return max(
        _distinct(manifests),
        key=lambda one: (
            one.leader_epochs[-1].epoch,
            one.end_offset,
            one.event_timestamp_ms,
            one.segment_id,
        ),
    )


def stored_partition(
    manifests: Sequence[SegmentManifest], epochs: Sequence[EpochEntry]
) -> StoredPartition:
    """Return the log of a partition. `manifests` are the manifests of its segments, at least one.

    `epochs` are the leader epochs in the indexes of `newest_segment(manifests)`.
    """
    distinct = _distinct(manifests)
    newest = newest_segment(distinct)
    by_id = {one.segment_id: one for one in distinct}
    start = min(one.leader_epochs[0].start_offset for one in distinct)
    # A damaged list of epochs must not hide the records of the newest segment.
    known = [entry for entry in epochs if entry.epoch < newest.leader_epochs[0].epoch]
    own_start = newest.leader_epochs[0]
    below = [entry for entry in epochs if entry.epoch == own_start.epoch]
    first = below[0] if below and below[0].start_offset <= own_start.start_offset else own_start
    lineage = Lineage(
        (*known, first, *newest.leader_epochs[1:]),
        start_offset=start,
        end_offset=Offset(newest.end_offset + 1),
    )
    metadata = _metadata_of(distinct)
    pieces: list[Piece] = []
    for entry, end_offset in lineage.ranges():
        offset = entry.start_offset
        while offset < end_offset:
            segment = metadata.find(entry.epoch, offset)
            if segment is None:
                offset = min(
                    (
                        segment.start_offset_of(entry.epoch)
                        for segment in metadata.readable_segments(entry.epoch)
                        if segment.start_offset_of(entry.epoch) > offset
                    ),
                    default=end_offset,
                )
                continue
            end = Offset(min(segment.end_offset_of(entry.epoch) + 1, end_offset))
            _append(pieces, Piece(by_id[segment.id.segment_id], offset, end))
            offset = end
    used = {piece.manifest.segment_id for piece in pieces}
    return StoredPartition(
        pieces=tuple(pieces),
        epochs=Lineage(
            lineage.entries, start_offset=pieces[0].start_offset, end_offset=lineage.end_offset
        ).entries,
        unused=tuple(one for one in manifests if by_id[one.segment_id] is not one)
        + tuple(one for one in distinct if one.segment_id not in used),
    )


def _distinct(manifests: Iterable[SegmentManifest]) -> list[SegmentManifest]:
    """Return the segments in the order of their uploads. If several segments have the same id,
    which only a hostile writer can cause, only the first one is returned."""
    found: dict[UUID, SegmentManifest] = {}
    for manifest in sorted(
        manifests, key=lambda one: (one.event_timestamp_ms, one.segment_id, one.start_offset)
    ):
        found.setdefault(manifest.segment_id, manifest)
    return list(found.values())


def _metadata_of(manifests: Iterable[SegmentManifest]) -> RemoteMetadata:
    """Return the metadata of a partition's copied segments, built from their manifests as if the
    uploads had ended in the order of `manifests`."""
    metadata = RemoteMetadata()
    for manifest in manifests:
        segment = manifest.remote_segment
        refusal = metadata.apply(replace(segment, state=RemoteSegmentState.COPY_STARTED))
        assert refusal is None, refusal
        metadata.apply(
            RemoteSegmentUpdate(
                id=RemoteSegmentId(*segment.id),
                event_timestamp_ms=segment.event_timestamp_ms,
                custom_metadata=segment.custom_metadata,
                state=RemoteSegmentState.COPY_FINISHED,
                broker_id=segment.broker_id,
            )
        )
    return metadata


def _append(pieces: list[Piece], piece: Piece) -> None:
    """Append a piece to the pieces of a log. If it continues the last piece of the same segment,
    the two become one piece."""
    if pieces and pieces[-1].manifest is piece.manifest:
        before = pieces[-1]
        if before.end_offset == piece.start_offset:
            pieces[-1] = before._replace(end_offset=piece.end_offset)
            return
    pieces.append(piece)
