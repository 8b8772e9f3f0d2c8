"""Check of closed segments against the files that describe them: `closed-segments` and
`abort-digests`.

A clean start accepts a closed segment without opening it if its files have the listed sizes. Every
start compares the aborted transactions of sealed segments with their digests, because a replaced
`.txnindex` may have the same size and plausible entries.
"""

import logging
from contextlib import suppress
from itertools import pairwise

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset
from ottla.storage.disk.disk_seam import Disk, when_cached
from ottla.storage.segments.abort_digests import (
    ABORT_DIGESTS,
    NO_ABORTS,
    AbortDigest,
    parse_digests,
)
from ottla.storage.segments.directory_view import DirectoryView
from ottla.storage.segments.entry_file import EntryFile
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_list import CLOSED_SEGMENTS, ClosedSegment, parse_segments

_LOGGER = logging.getLogger(__name__)

CHANGED_SEGMENT = (
    "%s does not have its %d bytes of the last clean shutdown: the log is checked from here on"
)
GONE_SEGMENTS = (
    "%s: %d closed segments of the last clean shutdown are missing, the first from offset %d on; "
    "their records are lost here. As a follower the replica drops the records behind the hole and "
    "fetches them again; as a leader it keeps them"
)
OTHER_ABORTS = (
    "%s has %d aborted transactions, which differ from the %d recorded ones; it is rebuilt from "
    "the markers of its segment"
)


class SealedSegments:
    """The closed segments of one log, as `closed-segments` and `abort-digests` describe them."""

    def __init__(self, disk: Disk, view: DirectoryView) -> None:
        self._disk = disk
        self._view = view
        self._digests: dict[int, AbortDigest] | None = None
        """Digests of the aborted transactions in closed segments, by base offset. None if there is
        no `abort-digests` file."""
        self._listed: dict[int, ClosedSegment] = {}
        """Closed segments as a clean shutdown listed them, by base offset. Empty if the last
        shutdown was not clean."""
        self.hole_offset: Offset | None = None
        """Start of the first range of offsets that is missing because closed segments are missing.
        None if no such hole exists."""
        self.has_swaps = False
        """True if this startup completed the swap of an interrupted compaction. Missing segments
        are then no loss."""

    async def load(
        self, segments: list[Segment], log_start_offset: Offset, *, is_clean: bool
    ) -> None:
        """Read the files `closed-segments` and `abort-digests` of the log. A file that is missing
        or corrupt is ignored.

        Segments that are completely below the log start offset may be missing.
        """
        with suppress(FileNotFoundError, CorruptDataError):
            self._digests = parse_digests(await self._view.read_file(ABORT_DIGESTS))
        if not is_clean:
            return
        with suppress(FileNotFoundError, CorruptDataError):
            self._listed = parse_segments(await self._view.read_file(CLOSED_SEGMENTS))
        found = {segment.base_offset for segment in segments}
        bases = sorted(self._listed.keys() | found)
        ends = dict(pairwise(bases))
        gone = [
            base
            for base in bases
            if base not in found and ends.get(base, log_start_offset + 1) > log_start_offset
        ]
        if gone and not self.has_swaps:
            self.hole_offset = max(Offset(gone[0]), log_start_offset)
            _LOGGER.error(GONE_SEGMENTS, self._view.path, len(gone), gone[0])

    def is_changed(self, segment: Segment) -> bool:
        """Return whether the size of a segment's log file differs from the size in
        `closed-segments`."""
        listed = self._listed.get(segment.base_offset)
        if listed is None or listed.size_bytes == segment.size_bytes:
            return False
        _LOGGER.error(CHANGED_SEGMENT, segment.file.path, listed.size_bytes)
        return True

    async def accept_unopened(self, segment: Segment) -> bool:
        """Accept the indexes of a closed segment without opening them. Returns False if their sizes
        differ from those in `closed-segments`.

        If the segment has aborted transactions, its transaction index is read nevertheless.
        """
        listed = self._listed.get(segment.base_offset)
        offsets, times = segment.offset_index, segment.time_index
        view = self._view
        if listed is None or not (view.has(offsets.path) and view.has(times.path)):
            return False
        counts: list[tuple[EntryFile, int]] = [
            (offsets, listed.offset_entry_count),
            (times, listed.time_entry_count),
        ]
        if view.has(segment.transaction_index_path) or listed.abort_count:
            counts.append((segment.transaction_index, listed.abort_count))
        for file, count in counts:
            size = view.size_of(file.path)
            if size is None or size != count * file.entry_bytes:
                return False
            file.open_sealed(size)
        segment.max_timestamp_ms = listed.max_timestamp_ms
        segment.max_timestamp_offset = Offset(listed.max_timestamp_offset)
        base_offset = segment.base_offset
        if listed.abort_count:
            aborts = segment.transaction_index
            is_sound = await when_cached(self._disk, lambda: aborts.is_sound(base_offset))
            if not is_sound:
                return False
        return self.has_its_aborts(segment)

    def has_its_aborts(self, segment: Segment) -> bool:
        """Return whether the entries of a segment's open `.txnindex` match the digest that was
        written when the segment was sealed."""
        if self._digests is None:
            return True
        found = segment.abort_digest
        known = self._digests.get(segment.base_offset, NO_ABORTS)
        if found != known:
            path = segment.transaction_index_path
            _LOGGER.error(OTHER_ABORTS, path, found.entry_count, known.entry_count)
        return found == known
