"""Reads of partitions from explicit positions by single Fetch requests. Unlike a consumer, these
reads use no fetch sessions and no background tasks, and do not fetch ahead.

They are intended for programs that show or copy records. The arguments limit the bytes of each
response, and nothing is committed or stored at the brokers.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.client.fetch.fetched import FetchedRecords
from ottla.client.fetch.offset_lookup import ISOLATION
from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.client.fetch.record_decoder import RecordDecoder
from ottla.client.network.cluster import Cluster, raise_for
from ottla.model.errors import CorruptDataError, ErrorCode, row_of
from ottla.model.ids import NO_EPOCH, NodeId, Offset, TopicPartition
from ottla.model.limits import MIB
from ottla.wire.apis import FETCH_TOPIC_IDS_FROM
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse

FETCH_BY_NAME_VERSION = FETCH_TOPIC_IDS_FROM - 1
PARTITION_BYTES_MAX = MIB
RESPONSE_BYTES_MAX = 50 * MIB
WAIT_MS_MAX = 500


@dataclass(slots=True)
class ReadPosition:
    """Position from which a partition is read, and the offset at which reading stops."""

    topic: str
    partition: int
    offset: int
    end_offset: int | None
    leader: int = -1
    """Id of the broker from which the partition was last fetched, or -1 before the first fetch."""

    @property
    def is_at_end(self) -> bool:
        """True if the position has reached the offset at which reading stops."""
        return self.end_offset is not None and self.offset >= self.end_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """Limits of one response to a Fetch request."""

    partition_bytes: int = PARTITION_BYTES_MAX
    """Maximum size of one partition's records in bytes. The first batch is always complete."""
    response_bytes: int = RESPONSE_BYTES_MAX
    """Maximum size of the response in bytes, apart from its first batch."""
    wait_ms: int = WAIT_MS_MAX
    """Time in ms that a broker waits for the first record if no record is available. It applies
    only if all partitions have the same leader."""


DEFAULT_LIMITS = ReadLimits()


async def fetch_once(
    cluster: Cluster,
    positions: Sequence[ReadPosition],
    level: str,
    decoder: RecordDecoder,
    limits: ReadLimits = DEFAULT_LIMITS,
) -> tuple[list[tuple[ReadPosition, list[ConsumerRecord]]], int]:
    """Send one Fetch request to each leader, one after another. Returns the records by position.
    Also returns the last retriable error code of a partition, or 0 if no partition had an error."""
    by_leader: dict[NodeId, list[ReadPosition]] = {}
    for position in positions:
        at = TopicPartition(position.topic, position.partition)
        leader = await cluster.leader_of(at)
        by_leader.setdefault(leader, []).append(position)
    found: list[tuple[ReadPosition, list[ConsumerRecord]]] = []
    stale = 0
    for leader, wanted in by_leader.items():
        request = FetchRequest(
            max_wait_ms=limits.wait_ms if len(by_leader) == 1 else 0,
            min_bytes=1,
            max_bytes=limits.response_bytes,
            session_epoch=-1,
            isolation_level=ISOLATION[level],
            topics=_fetch_topics(wanted, limits.partition_bytes),
        )
        answer = await cluster.request(
            request, FetchResponse, node=leader, version=FETCH_BY_NAME_VERSION
        )
        by_place = {(position.topic, position.partition): position for position in wanted}
        parts = [(one.topic, part) for one in answer.responses for part in one.partitions]
        for topic, part in parts:
            position = by_place[topic, part.partition_index]
            if part.error_code != ErrorCode.NONE:
                if not row_of(part.error_code).is_retriable:
                    raise_for(part.error_code)
                stale = part.error_code
                continue
            position.leader = leader
            aborted = [
                (one.producer_id, one.first_offset) for one in part.aborted_transactions or ()
            ]
            found.append((position, records_of(part.records, position, aborted, decoder)))
    return found, stale


def _fetch_topics(positions: Iterable[ReadPosition], partition_bytes: int) -> list[FetchTopic]:
    by_topic: dict[str, list[FetchPartition]] = {}
    for position in positions:
        by_topic.setdefault(position.topic, []).append(
            FetchPartition(
                partition=position.partition,
                fetch_offset=position.offset,
                partition_max_bytes=partition_bytes,
            )
        )
    return [FetchTopic(topic=topic, partitions=parts) for topic, parts in by_topic.items()]


def records_of(
    data: Any,
    position: ReadPosition,
    aborted: Iterable[tuple[int, int]] = (),
    decoder: RecordDecoder | None = None,
) -> list[ConsumerRecord]:
    """Return the complete records in a fetch response. An incomplete batch at the end of the
    response is ignored; the next request fetches it again.

    `aborted` contains pairs of producer id and first offset. Records of these aborted transactions
    are omitted.
    """
    if not data:
        return []
    fetched = FetchedRecords(
        TopicPartition(position.topic, position.partition),
        Offset(position.offset),
        NO_EPOCH,
        data,
        aborted=[(producer_id, Offset(first)) for producer_id, first in aborted],
        decoder=decoder,
    )
    try:
        found = fetched.take(sys.maxsize)
    except CorruptDataError:
        raise_for(ErrorCode.CORRUPT_MESSAGE)
    if not found:
        # The batches contained only markers, aborted records or compacted offsets: skip them.
        position.offset = max(position.offset, fetched.offset)
    return found


def wanted_of(
    records: Iterable[ConsumerRecord], position: ReadPosition
) -> Iterator[ConsumerRecord]:
    """Yield the records between the position and its end offset. If a record is at or after the end
    offset, set the position to the end offset."""
    for record in records:
        if position.end_offset is not None and record.offset >= position.end_offset:
            # Compaction may have removed the last records before the end, so the position is set
            # here.
            position.offset = position.end_offset
            return
        if record.offset >= position.offset:
            yield record
