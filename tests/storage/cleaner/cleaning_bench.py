"""One cleaning of an open log without the cleaner driver; cleaned segments are swapped in."""

from collections.abc import Container
from contextlib import aclosing
from itertools import pairwise

from ottla.storage.cleaner.batch_bodies import body_of
from ottla.storage.cleaner.batch_rewrite import emptied_batch, rewritten_batch
from ottla.storage.cleaner.clean_driver import clean
from ottla.storage.cleaner.cleaning_task import (
    CleanableSegment,
    CleanedGroup,
    CleaningDone,
    CleaningTask,
    LastRecord,
)
from ottla.storage.cleaner.record_forms import RecordForm
from ottla.storage.cleaner.record_work import KeptRecords, placed_records
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.log.log import Log
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.transaction_index import AbortedTransaction
from ottla.wire.batch import parse_header

SEED = 0x0123456789ABCDEF_FEDCBA9876543210


async def unthrottled(byte_count: int) -> None:
    """Let any number of bytes pass at once."""


def task_of(
    log: Log,
    *,
    first_dirty_offset: int = 0,
    now_ms: int,
    delete_retention_ms: int = 0,
    map_bytes: int = 1 << 20,
    io_buffer_bytes: int = 1 << 16,
) -> CleaningTask:
    """Return the task that cleans a log up to its active segment or its last stable offset."""
    end_offset = min(log.segments[-1].base_offset, log.last_stable_offset)
    segments = [
        CleanableSegment(
            segment.base_offset, following.base_offset, segment.size_bytes, segment.file.modified_ms
        )
        for segment, following in pairwise(log.segments)
        if segment.base_offset < end_offset
    ]
    return CleaningTask(
        directory=log.directory,
        segments=tuple(segments),
        log_start_offset=log.log_start_offset,
        first_dirty_offset=max(first_dirty_offset, log.log_start_offset),
        end_offset=end_offset,
        high_watermark=log.high_watermark,
        now_ms=now_ms,
        delete_retention_ms=delete_retention_ms,
        segment_bytes=log.config.segment_bytes,
        segment_index_bytes=log.config.segment_index_bytes,
        index_interval_bytes=log.config.index_interval_bytes,
        max_message_bytes=log.config.max_message_bytes,
        map_bytes=map_bytes,
        map_load_factor=0.9,
        io_buffer_bytes=io_buffer_bytes,
        producers={
            producer_id: LastRecord(
                entry.batches[-1].last_offset if entry.batches else -1, entry.epoch
            )
            for producer_id, entry in log.active_producers.items()
        },
        aborted_beyond=tuple(
            aborted
            for segment in log.segments[len(segments) :]
            for aborted in aborts_of(segment)
            if aborted.first_offset < end_offset
        ),
        hash_seed=SEED,
    )


def aborts_of(segment: Segment) -> list[AbortedTransaction]:
    """Return the entries of a segment's transaction index."""
    index = segment.transaction_index
    return [index.entry_at(number) for number in range(index.count)]


async def clean_log(
    disk: Disk, log: Log, task: CleaningTask, *, form: RecordForm | None = None
) -> tuple[CleaningDone, list[CleanedGroup]]:
    """Clean an open log, swapping in each group; return the end and the groups."""
    groups: list[CleanedGroup] = []
    log.is_being_cleaned = True
    try:
        async with aclosing(clean(disk, task, unthrottled, form=form)) as reports:
            async for report in reports:
                if isinstance(report, CleaningDone):
                    return report, groups
                await log.replace_segments(report)
                groups.append(report)
    finally:
        log.is_being_cleaned = False
    raise AssertionError("a cleaning ends with its figures")


def compacted_batch(
    batch: bytes | bytearray, kept: Container[int] = (), *, horizon_ms: int | None = None
) -> bytes:
    """Return a batch as a cleaning leaves it that keeps the records at these offsets."""
    body = body_of(bytes(batch), 0, parse_header(batch))
    records = [one for one in placed_records(body) if one[0].offset in kept]
    if not records:
        return emptied_batch(body.header)
    ranges = [(start, end) for _, start, end in records]
    latest_ms = max(record.timestamp_ms for record, _, _ in records)
    verdict = KeptRecords(len(records), ranges, latest_ms, has_tombstone=False, keyless_count=0)
    return rewritten_batch(body, verdict, horizon_ms=horizon_ms)
