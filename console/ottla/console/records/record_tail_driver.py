"""Follows the records of a topic as they arrive, within limits of rate and memory."""

from collections import deque
from collections.abc import AsyncGenerator

import trio

from ottla.client.admin import Admin
from ottla.client.fetch.position_reads import ReadLimits, ReadPosition, fetch_once
from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.client.fetch.record_decoder import RecordDecoder
from ottla.console.partition_offsets_driver import known_offsets
from ottla.console.records.read_query import ReadQuery
from ottla.console.records.record_reads_driver import (
    PARTITIONS_MAX,
    RecordScan,
    chosen_partitions,
)
from ottla.console.records.schema_formats_driver import FieldDecoder
from ottla.model.ids import TopicPartition
from ottla.model.limits import KIB, MIB
from ottla.model.values import frozen
from ottla.wire.offset_timestamps import LATEST

INTERVAL_S = 1.0
"""Interval, in seconds, between two requests for new records. It determines the load that an open
page causes on the brokers."""
RECORDS_SHOWN = 50
KEPT_BYTES_MAX = 16 * MIB
"""Maximum size, in bytes, of the newest records that are kept and shown."""
RESPONSE_BYTES = MIB
PARTITION_BYTES = 64 * KIB
FULL_ROUNDS_MAX = 5
"""Number of consecutive full responses after which the reader of new records skips to the end of
the topic, because records arrive faster than a page can show them."""


@frozen(kw_only=True)
class TailedRecords:
    """The newest records of a topic that a page follows, newest first."""

    records: tuple[ConsumerRecord, ...]
    matched_count: int
    """Number of records that matched the query since the page was opened."""
    skipped_count: int
    """Number of offsets that were skipped, because records arrived faster than the page can show
    them."""


async def tail_records(
    admin: Admin, topic: str, query: ReadQuery, decoder: FieldDecoder
) -> AsyncGenerator[TailedRecords, None]:
    """Yield the newest records of a topic whenever new records have arrived, at most every
    INTERVAL_S seconds. The first result is empty."""
    described = await admin.describe_topic(topic)
    leaders = {one.partition: one.leader for one in described.partitions}
    chosen = chosen_partitions(topic, query, leaders)[:PARTITIONS_MAX]
    places = {TopicPartition(topic, one): leaders[one] for one in chosen}
    ends = await known_offsets(admin, places, LATEST)
    positions = [ReadPosition(topic, at.partition, end, None) for at, end in ends.items()]
    limits = ReadLimits(partition_bytes=PARTITION_BYTES, response_bytes=RESPONSE_BYTES, wait_ms=0)
    scan, records = RecordScan(admin, topic, query, decoder), RecordDecoder()
    shown: deque[ConsumerRecord] = deque()
    matched_count = skipped_count = full_rounds = 0
    yield TailedRecords(records=(), matched_count=0, skipped_count=0)
    while positions:
        await trio.sleep(INTERVAL_S)
        found, stale = await fetch_once(admin.cluster, positions, query.level, records, limits)
        if stale:
            admin.cluster.forget_leaders()
        matches, size = [], 0
        for position, some in found:
            wanted = [one for one in some if one.offset >= position.offset]
            await scan.prepare(wanted)
            matches += [one for one in wanted if scan.is_match(one)]
            size += sum(len(one.key or b"") + len(one.value or b"") for one in wanted)
            if wanted:
                position.offset = wanted[-1].offset + 1
        full_rounds = full_rounds + 1 if size >= RESPONSE_BYTES // 2 else 0
        if full_rounds > FULL_ROUNDS_MAX:
            full_rounds = 0
            ends = await known_offsets(admin, places, LATEST)
            for position in positions:
                at = TopicPartition(topic, position.partition)
                skipped = max(0, ends.get(at, 0) - position.offset)
                skipped_count += skipped
                position.offset += skipped
        if matches:
            matched_count += len(matches)
            matches.sort(key=lambda one: one.timestamp_ms)
            shown.extendleft(matches)
            _trim(shown)
            yield TailedRecords(
                records=tuple(shown), matched_count=matched_count, skipped_count=skipped_count
            )


def _trim(shown: deque[ConsumerRecord]) -> None:
    """Delete the oldest of the shown records that exceed the limits of count and bytes."""
    size = 0
    for kept, one in enumerate(shown):
        size += len(one.key or b"") + len(one.value or b"")
        if kept >= RECORDS_SHOWN or (size > KEPT_BYTES_MAX and kept):
            while len(shown) > kept:
                shown.pop()
            return
