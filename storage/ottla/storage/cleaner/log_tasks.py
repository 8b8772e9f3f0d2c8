"""Creation of the task that compacts one log, from the current state of the log. Pure except for
`aborted_beyond`."""

from functools import partial
from itertools import pairwise

from ottla.model.ids import Offset
from ottla.model.limits import BATCH_HEADER_BYTES, GIB
from ottla.model.settings.storage.cleaner import CleanerConfig
from ottla.storage.cleaner.cleanable import Cleanable
from ottla.storage.cleaner.cleaning_task import CleanableSegment, CleaningTask, LastRecord
from ottla.storage.disk.disk_seam import Disk, when_cached
from ottla.storage.log.log import Log
from ottla.storage.segments.transaction_index import AbortedTransaction, TransactionIndex

MAP_BYTES_MAX = 2 * GIB
"""Maximum memory of the offset map of one log in bytes, as in Kafka."""


def task_of(
    log: Log,
    cleanable: Cleanable,
    config: CleanerConfig,
    aborted: tuple[AbortedTransaction, ...],
    *,
    now_ms: int,
    hash_seed: int,
) -> CleaningTask:
    """Return the task that compacts a log up to the end of its cleanable part.

    `aborted` is the result of `aborted_beyond`. `hash_seed` is the key of the offset map's hash
    function.
    """
    segments = log.segments
    count = _cleaned_count(log, cleanable.end_offset)
    slots = max(1, config.thread_count)
    return CleaningTask(
        directory=log.directory,
        segments=tuple(
            CleanableSegment(
                base_offset=segment.base_offset,
                end_offset=following.base_offset,
                size_bytes=segment.size_bytes,
                modified_ms=segment.file.modified_ms,
            )
            for segment, following in pairwise(segments[: count + 1])
        ),
        log_start_offset=log.log_start_offset,
        first_dirty_offset=cleanable.first_dirty_offset,
        end_offset=cleanable.end_offset,
        high_watermark=log.high_watermark,
        now_ms=now_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        segment_bytes=log.config.segment_bytes,
        segment_index_bytes=log.config.segment_index_bytes,
        index_interval_bytes=log.config.index_interval_bytes,
        max_message_bytes=log.config.max_message_bytes,
        map_bytes=min(config.dedupe_buffer_bytes // slots, MAP_BYTES_MAX),
        map_load_factor=float(config.buffer_load_factor),
        io_buffer_bytes=max(config.io_buffer_bytes // slots // 2, BATCH_HEADER_BYTES),
        producers={
            producer_id: LastRecord(
                producer.batches[-1].last_offset if producer.batches else -1, producer.epoch
            )
            for producer_id, producer in log.active_producers.items()
        },
        aborted_beyond=aborted,
        hash_seed=hash_seed,
    )


async def aborted_beyond(
    disk: Disk, log: Log, end_offset: Offset
) -> tuple[AbortedTransaction, ...]:
    """Return the aborted transactions of the log that began below `end_offset` and ended in a later
    segment.

    Transaction indexes are loaded into the page cache one at a time. Loading all indexes at once
    could exceed the disk's maximum number of open files.
    """
    found: list[AbortedTransaction] = []
    for segment in log.segments[_cleaned_count(log, end_offset) :]:
        entries = await when_cached(disk, partial(_entries_of, segment.transaction_index))
        found += [entry for entry in entries if entry.first_offset < end_offset]
    return tuple(found)


def _entries_of(index: TransactionIndex) -> list[AbortedTransaction]:
    return [index.entry_at(number) for number in range(index.count)]


def _cleaned_count(log: Log, end_offset: Offset) -> int:
    return sum(1 for segment in log.segments[:-1] if segment.base_offset < end_offset)
