"""Look-up of an offset by time: time index, then offset index, then the records of one batch.

All other reads of a log return batches without decoding their records. A look-up decodes the batch
with the result, and a few more batches if headers claim larger timestamps than their records have.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from heapq import heappush, heappushpop
from typing import NamedTuple

from ottla.model.ids import Epoch, Offset
from ottla.storage.disk.disk_seam import Disk, when_cached
from ottla.storage.segments.batch_scan import BatchScan
from ottla.storage.segments.segment import Segment
from ottla.wire.batch import MAGIC, NO_TIMESTAMP, BatchHeader
from ottla.wire.legacy import LegacyMessage, header_of_any_format, messages
from ottla.wire.records import Record, scan

CLAIMS_INSPECTED_MAX = 16
"""Maximum number of batches in a segment whose records are decoded if no record has the largest
timestamp that a header claims. With fewer, wrong headers can easily hide the true maximum. With
more, the event loop is blocked for longer."""


class TimestampedOffset(NamedTuple):
    """Result of a look-up by time in a log: a record's offset, timestamp and leader epoch."""

    offset: Offset
    timestamp_ms: int
    leader_epoch: Epoch


async def first_at_or_after(
    disk: Disk,
    segments: Sequence[Segment],
    timestamp_ms: int,
    *,
    start_offset: Offset,
    end_offset: Offset,
) -> TimestampedOffset | None:
    """Return offset, timestamp and leader epoch of the first record in `[start_offset, end_offset)`
    whose timestamp is at least `timestamp_ms`. Returns None if there is no such record."""
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        if segment.max_timestamp_ms < timestamp_ms:
            continue
        position = await when_cached(
            disk, partial(_position_before, segment, timestamp_ms, start_offset)
        )
        found = await first_of_scan(
            _scan_from(disk, segment, position),
            timestamp_ms,
            start_offset=start_offset,
            end_offset=end_offset,
        )
        if found is not None:
            return found
    return None


async def first_of_scan(
    scanning: BatchScan, timestamp_ms: int, *, start_offset: Offset, end_offset: Offset
) -> TimestampedOffset | None:
    """Return the first record of the scanned batches that is in `[start_offset, end_offset)` and
    has a timestamp of at least `timestamp_ms`. Returns None if there is no such record."""
    while (block := await scanning.next_block()) is not None:
        for at, header in block.batches:
            if header.base_offset >= end_offset:
                return None
            if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
                continue
            found = _first_record(block.data, at, header, timestamp_ms, start_offset, end_offset)
            if found is not None:
                return found
    return None


async def with_largest_timestamp(
    disk: Disk, segments: Sequence[Segment], *, start_offset: Offset, end_offset: Offset
) -> TimestampedOffset | None:
    """Return offset, timestamp and leader epoch of the record in `[start_offset, end_offset)` that
    has the largest timestamp. If several records have that timestamp, the first is returned.
    Returns None if no record has a timestamp.

    The timestamps in headers only decide where to search. A header that claims too large a
    timestamp does not hide other batches.
    """
    best: TimestampedOffset | None = None
    for segment in sorted(segments, key=lambda each: (-each.max_timestamp_ms, each.base_offset)):
        if segment.max_timestamp_ms <= (NO_TIMESTAMP if best is None else best.timestamp_ms):
            break
        found = await first_at_or_after(
            disk,
            [segment],
            segment.max_timestamp_ms,
            start_offset=start_offset,
            end_offset=end_offset,
        )
        if found is None:
            found = await _largest_of(disk, segment, start_offset, end_offset)
        if found is not None and (best is None or found.timestamp_ms > best.timestamp_ms):
            best = found
    return best


async def _largest_of(
    disk: Disk, segment: Segment, start_offset: Offset, end_offset: Offset
) -> TimestampedOffset | None:
    """Return the record of a segment that has the largest timestamp, or None if no record has a
    timestamp. Only the batches whose headers claim the largest timestamps are decoded."""
    claims: list[tuple[int, int, int]] = []  # (claimed timestamp, -position, size): a heap
    scanning = _scan_from(disk, segment, 0)
    while (block := await scanning.next_block()) is not None:
        for at, header in block.batches:
            if header.base_offset >= end_offset or header.last_offset < start_offset:
                continue
            claim = (header.max_timestamp, -(block.position + at), header.size_bytes)
            if len(claims) < CLAIMS_INSPECTED_MAX:
                heappush(claims, claim)
            else:
                heappushpop(claims, claim)
    best: TimestampedOffset | None = None
    for claimed, negative_position, size in sorted(claims, reverse=True):
        if best is not None and claimed <= best.timestamp_ms:
            break
        data = memoryview(await disk.read(segment.file, -negative_position, size))
        header = header_of_any_format(data)
        for record in _records(data, 0, header):
            is_in_range = start_offset <= record.offset < end_offset
            if is_in_range and (best is None or record.timestamp_ms > best.timestamp_ms):
                epoch = Epoch(header.partition_leader_epoch)
                best = TimestampedOffset(record.offset, record.timestamp_ms, epoch)
    return best if best is not None and best.timestamp_ms > NO_TIMESTAMP else None


def _position_before(segment: Segment, timestamp_ms: int, start_offset: Offset) -> int:
    """Return a file position at or before the first batch that has a timestamp of at least
    `timestamp_ms`. The position is determined with the time index and the offset index."""
    start = max(segment.time_index.lookup(timestamp_ms)[1], start_offset)
    return segment.offset_index.lookup(start)[1]


def _scan_from(disk: Disk, segment: Segment, position: int) -> BatchScan:
    return BatchScan(
        disk,
        segment.file,
        position=position,
        end=segment.size_bytes,
        first_offset=segment.base_offset,
        base_offset=None,
        is_crc_checked=False,
    )


def _records(
    data: memoryview, at: int, header: BatchHeader
) -> Iterator[Record] | Iterator[LegacyMessage]:
    """Yield the decoded records of the batch at position `at` in `data`. In the formats v0 and v1,
    yield the messages of the entry at that position."""
    if header.magic == MAGIC:
        return scan(data, at, header)
    return messages(data[at : at + header.size_bytes])


def _first_record(
    data: memoryview,
    at: int,
    header: BatchHeader,
    timestamp_ms: int,
    start_offset: Offset,
    end_offset: Offset,
) -> TimestampedOffset | None:
    for record in _records(data, at, header):
        if record.timestamp_ms >= timestamp_ms and start_offset <= record.offset < end_offset:
            epoch = Epoch(header.partition_leader_epoch)
            return TimestampedOffset(record.offset, record.timestamp_ms, epoch)
    return None
