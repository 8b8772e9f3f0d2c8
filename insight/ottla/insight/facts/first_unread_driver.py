"""Reads the timestamps of the first records that groups have not consumed. A group's lag in time is
the age of that record.

The work is bounded. Each partition costs at most FETCHES_MAX fetches of one batch, and at most
FETCHES_AT_ONCE fetches run at the same time. Groups with the same offset share a fetch.
"""

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import trio

from ottla.client.fetch.fetched import FetchedRecords
from ottla.client.fetch.offset_lookup import ISOLATION
from ottla.client.network.cluster import Cluster
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import NO_EPOCH, Offset, TopicPartition
from ottla.wire.apis import FETCH_TOPIC_IDS_FROM
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse, PartitionData

FETCHES_MAX = 3
"""Maximum number of fetches from one partition to find a group's first unread record. Several may
be needed, because batches with transaction markers or aborted records may precede it."""
FETCHES_AT_ONCE = 8
BATCH_BYTES = 1
"""Limit of a fetch that looks for a group's first unread record, in bytes. A broker returns the
whole first batch even if it is larger."""


class Unread(NamedTuple):
    """A partition, and the first offset in it that a group has not consumed."""

    at: TopicPartition
    offset: int


async def seconds_behind(
    cluster: Cluster,
    wanted: Iterable[Unread],
    *,
    isolation_level: str = "read_uncommitted",
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> dict[Unread, float | None]:
    """Return the age, in seconds, of the first record at or after the offset of each entry of
    `wanted`. The age is None if no record was found. `report` is called with the number of finished
    look-ups and the number of all look-ups."""
    found: dict[Unread, float | None] = {}
    places = sorted(set(wanted))
    limit = trio.CapacityLimiter(FETCHES_AT_ONCE)

    async def look_up(place: Unread) -> None:
        async with limit:
            try:
                stamp = await _timestamp_from(cluster, place, isolation_level)
            except OttlaError:
                stamp = None  # unknown; the lag in records is still shown
        found[place] = None if stamp is None else max(0, _wall_ms() - stamp) / 1_000
        report(len(found), len(places))

    async with trio.open_nursery() as nursery:
        for place in places:
            nursery.start_soon(look_up, place)
    return found


async def _timestamp_from(cluster: Cluster, place: Unread, level: str) -> int | None:
    offset = place.offset
    for _ in range(FETCHES_MAX):
        data = await _fetch(cluster, Unread(place.at, offset), level)
        if data is None or data.error_code != ErrorCode.NONE or not data.records:
            return None
        assert isinstance(data.records, memoryview | bytes)
        fetched = FetchedRecords(
            place.at,
            Offset(offset),
            NO_EPOCH,
            data.records,
            aborted=[
                (one.producer_id, Offset(one.first_offset))
                for one in data.aborted_transactions or ()
            ],
        )
        if records := fetched.take(1):
            return records[0].timestamp_ms
        if fetched.offset <= offset:
            return None
        offset = fetched.offset
    return None


async def _fetch(cluster: Cluster, place: Unread, level: str) -> PartitionData | None:
    part = FetchPartition(
        partition=place.at.partition,
        fetch_offset=place.offset,
        partition_max_bytes=BATCH_BYTES,
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=BATCH_BYTES,
        session_epoch=-1,
        isolation_level=ISOLATION[level],
        topics=[FetchTopic(topic=place.at.topic, partitions=[part])],
    )
    answer = await cluster.request(
        request,
        FetchResponse,
        node=await cluster.leader_of(place.at),
        version=FETCH_TOPIC_IDS_FROM - 1,
    )
    return next((part for topic in answer.responses for part in topic.partitions), None)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
