"""Finds an offset by time: time index, then offset index, then the records of one batch.

The only read path that looks at records, and only in the batch where the answer lies.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.model.ids import Epoch, Offset
from ottla.storage.batch_scan import BatchScan
from ottla.storage.disk_seam import Disk
from ottla.storage.segment import Segment
from ottla.wire.batch import BatchHeader
from ottla.wire.records import scan


class TimestampedOffset(NamedTuple):
    """What a look-up by time found."""

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
    """Return the first record in `[start_offset, end_offset)` with at least that timestamp."""
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        if segment.max_timestamp_ms < timestamp_ms:
            continue
        start = max(segment.time_index.lookup(timestamp_ms)[1], start_offset)
        scanning = _scan_from(disk, segment, segment.offset_index.lookup(start)[1])
        while (block := await scanning.next_block()) is not None:
            for at, header in block.batches:
                if header.base_offset >= end_offset:
                    return None
                if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
                    continue
                found = _first_record(
                    block.data, at, header, timestamp_ms, start_offset, end_offset
                )
                if found is not None:
                    return found
    return None


async def with_largest_timestamp(
    disk: Disk, segments: Sequence[Segment], *, start_offset: Offset, end_offset: Offset
) -> TimestampedOffset | None:
    """Return the first record below `end_offset` that has the largest timestamp of all segments."""
    if not segments:
        return None
    largest = max(segments, key=lambda segment: segment.max_timestamp_ms)
    if largest.max_timestamp_ms < 0:
        return None
    return await first_at_or_after(
        disk,
        [largest],
        largest.max_timestamp_ms,
        start_offset=start_offset,
        end_offset=end_offset,
    )


def _scan_from(disk: Disk, segment: Segment, position: int) -> BatchScan:
    return BatchScan(
        disk,
        segment.file,
        position=position,
        end=segment.size_bytes,
        first_offset=segment.base_offset,
        base_offset=segment.base_offset,
        is_crc_checked=False,
    )


def _first_record(
    data: memoryview,
    at: int,
    header: BatchHeader,
    timestamp_ms: int,
    start_offset: Offset,
    end_offset: Offset,
) -> TimestampedOffset | None:
    for record in scan(data, at, header):
        if record.timestamp_ms >= timestamp_ms and start_offset <= record.offset < end_offset:
            epoch = Epoch(header.partition_leader_epoch)
            return TimestampedOffset(record.offset, record.timestamp_ms, epoch)
    return None
