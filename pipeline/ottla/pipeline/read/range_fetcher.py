"""Fetches ranges of offsets from the leaders of their partitions, one request ahead of the decoder.

`next` waits for a response, sends the next request, and only then returns the response. The broker
prepares the next response, and the kernel receives it, while the caller decodes. No other Python
thread competes with the caller for the GIL. Leader changes and broker restarts are tolerated up to
the user's timeout. Lost records are an error, or a warning if the user allows it.
"""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import trio

from ottla.client.fetch.offset_lookup import ISOLATION, find_offsets
from ottla.client.network.bootstrap import addresses_of
from ottla.client.network.cluster import Cluster, KnownLeader, open_cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.client.network.pipeline import Pipeline, RequestInFlight
from ottla.model.errors import CorruptDataError, ErrorCode, ProtocolError, RefusedError, row_of
from ottla.model.ids import NO_EPOCH, ZERO_UUID, Epoch, NodeId, TopicPartition, uuid_text
from ottla.pipeline.read.fetched_batches import FetchedBatches
from ottla.pipeline.read.range_progress import (
    RANGES_PER_FETCH_MAX,
    RangeProgress,
    TaskRanges,
    data_loss,
)
from ottla.pipeline.read.ranges import OffsetRange
from ottla.pipeline.read.read_options import ReadOptions
from ottla.wire.apis import FETCH, FETCH_TOPIC_IDS_FROM
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse, PartitionData
from ottla.wire.offset_timestamps import EARLIEST, LATEST

logger = logging.getLogger("ottla.pipeline")

GONE_AFTER_S = 5.0
"""Time in seconds after which a topic that brokers do not know is treated as deleted. A broker that
has just started may not know the topic yet."""
PATIENCE_S = 10.0
"""Time in seconds that a fetch request may take in addition to `fetch.max.wait.ms`."""


class RangeRequest(NamedTuple):
    """Fetch request in flight, with its broker and the offset ranges that it fetches."""

    node: NodeId
    wanted: dict[TopicPartition, RangeProgress]
    submitted: RequestInFlight[FetchResponse]


class RangeFetcher:
    """Fetcher of the offset ranges of one Spark task. Created by `open_range_fetcher`."""

    def __init__(self, cluster: Cluster, ranges: Sequence[OffsetRange], options: ReadOptions):
        lookback = options.replay_lookback_count if options.drop_replays else 0
        self._task_ranges = TaskRanges(ranges, lookback)
        self._cluster = cluster
        self._options = options
        self._config = options.consumer_config()
        self._links: dict[NodeId, Pipeline] = {}
        self._asked: RangeRequest | None = None
        self._stale = {one.topic for one in ranges}
        """Names of the topics whose metadata must be requested before the next fetch."""
        self._unknown_since: dict[str, float] = {}
        self._trouble = "no broker answered"

    async def next(self) -> tuple[RangeProgress, FetchedBatches] | None:
        """Return the next fetched batches of the first unfinished range of offsets, or None after
        the last range.

        Raises RefusedError if records were lost (OFFSET_OUT_OF_RANGE), if no records arrived within
        `poll_timeout_ms` (REQUEST_TIMED_OUT), or if the cluster refuses permanently.
        """
        with trio.move_on_after(self._options.poll_timeout_ms / 1_000):
            return await self._next()
        progress = self._task_ranges.current()
        assert progress is not None
        raise RefusedError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"offset {progress.position} of {progress.at} did not come within "
            f"{self._options.poll_timeout_ms} ms: {self._trouble}",
        )

    async def aclose(self) -> None:
        """Close the fetcher's connections to brokers."""
        for node in list(self._links):
            await self._drop(node)

    async def _next(self) -> tuple[RangeProgress, FetchedBatches] | None:
        while (progress := self._task_ranges.current()) is not None:
            is_given = progress.held is not None
            fetched = progress.give() if is_given else None
            try:
                if is_given:
                    if self._asked is None:
                        await self._ask()
                elif self._asked is not None:
                    await self._take_answer()
                elif progress.is_out_of_range:
                    await self._find_bounds(progress)
                else:
                    await self._ask()
            except (ConnectionLostError, ProtocolError, RefusedError) as error:
                if isinstance(error, RefusedError) and not error.is_retriable:
                    raise
                self._trouble = str(error)
                self._stale |= {one.at.topic for one in self._task_ranges.unfetched()}
                if not is_given:
                    await trio.sleep(self._config.retry_backoff_ms / 1_000)
            if fetched is not None:
                return progress, fetched
        return None

    async def _ask(self) -> None:
        """Send a fetch request for the first range of offsets that needs more records, and for
        other ranges with the same leader."""
        if self._stale:
            await self._refresh()
        first = next(self._task_ranges.unfetched(), None)
        if first is None:
            return
        leader = self._cluster.known_leader(first.at)
        if leader is None:
            raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, f"{first.at} has no leader")
        wanted: dict[TopicPartition, RangeProgress] = {}
        for progress in self._task_ranges.unfetched():
            known = self._cluster.known_leader(progress.at)
            if known is not None and known.node == leader.node:
                wanted.setdefault(progress.at, progress)
            if len(wanted) == RANGES_PER_FETCH_MAX:
                break
        link = await self._link(leader.node)
        version = link.version_of(FETCH)
        if any(self._cluster.topics[at.topic].topic_id == ZERO_UUID for at in wanted):
            version = min(version, FETCH_TOPIC_IDS_FROM - 1)
        try:
            submitted = await link.submit(self._request(wanted), FetchResponse, version)
        except ConnectionLostError:
            await self._drop(leader.node)
            raise
        self._asked = RangeRequest(leader.node, wanted, submitted)

    def _request(self, wanted: dict[TopicPartition, RangeProgress]) -> FetchRequest:
        config = self._config
        topics: dict[str, FetchTopic] = {}
        for at, progress in wanted.items():
            leader = self._cluster.known_leader(at)
            topic = topics.setdefault(
                at.topic,
                FetchTopic(topic=at.topic, topic_id=self._cluster.topics[at.topic].topic_id),
            )
            topic.partitions.append(
                FetchPartition(
                    partition=at.partition,
                    current_leader_epoch=NO_EPOCH if leader is None else leader.epoch,
                    fetch_offset=progress.position,
                    partition_max_bytes=config.partition_bytes_max,
                )
            )
        return FetchRequest(
            max_wait_ms=config.fetch_wait_ms_max,
            min_bytes=config.fetch_bytes_min,
            # Equal to the limit of a partition, so the first range fills the response before the
            # others do.
            max_bytes=min(config.fetch_bytes_max, config.partition_bytes_max),
            isolation_level=ISOLATION[self._options.isolation_level],
            topics=list(topics.values()),
        )

    async def _take_answer(self) -> None:
        assert self._asked is not None
        (node, wanted, submitted), self._asked = self._asked, None
        try:
            with trio.fail_after(self._config.fetch_wait_ms_max / 1_000 + PATIENCE_S):
                answer = await submitted.answer()
        except trio.TooSlowError:
            await self._drop(node)
            raise ConnectionLostError(f"broker {node} did not answer a fetch") from None
        except (ConnectionLostError, ProtocolError):
            await self._drop(node)
            raise
        if answer.error_code != ErrorCode.NONE:
            row = row_of(answer.error_code)
            raise RefusedError(ErrorCode(row.code), f"a fetch was refused: {row.meaning}")
        for endpoint in answer.node_endpoints:
            self._cluster.learn_address(NodeId(endpoint.node_id), endpoint.host, endpoint.port)
        names = {self._cluster.topics[at.topic].topic_id: at.topic for at in wanted}
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                progress = wanted.get(TopicPartition(name, data.partition_index))
                if progress is not None and progress.held is None:
                    self._take_partition(progress, data)
        if self._stale:
            await trio.sleep(self._config.retry_backoff_ms / 1_000)

    def _take_partition(self, progress: RangeProgress, data: PartitionData) -> None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            progress.is_out_of_range = True
        elif data.error_code != ErrorCode.NONE:
            row = row_of(data.error_code)
            if not row.is_retriable:
                raise RefusedError(ErrorCode(row.code), f"{progress.at}: {row.meaning}")
            self._trouble = f"{progress.at}: {row.meaning}"
            hint = data.current_leader
            leader = KnownLeader(NodeId(hint.leader_id), Epoch(hint.leader_epoch))
            if not self._cluster.learn_leader(progress.at, leader):
                self._stale.add(progress.at.topic)
        elif data.records:
            assert isinstance(data.records, memoryview | bytes)
            aborted = None
            if self._options.isolation_level == "read_committed":
                found = data.aborted_transactions or ()
                aborted = [(one.producer_id, one.first_offset) for one in found]
            try:
                fetched = FetchedBatches(
                    data.records,
                    progress.position,
                    progress.range.end,
                    aborted=aborted,
                    check_crcs=self._config.check_crcs,
                )
            except CorruptDataError as error:
                raise CorruptDataError(f"{progress.at}: {error.where}") from error
            progress.take(fetched)
        else:
            self._trouble = f"{progress.at} has no records there yet"

    async def _find_bounds(self, progress: RangeProgress) -> None:
        """Request the start and end of a partition's log, and report records of the range that are
        lost."""
        at = progress.at
        patience_s = self._config.request_timeout_ms / 1_000
        (earliest, latest) = [
            (await find_offsets(self._cluster, {at: time_ms}, timeout_s=patience_s))[at].offset
            for time_ms in (EARLIEST, LATEST)
        ]
        lost = progress.on_log_bounds(earliest, latest)
        if lost is not None:
            self._lose(lost)

    async def _refresh(self) -> None:
        """Request the leaders and topic ids of the topics in `_stale`, whose metadata is
        outdated."""
        answer = await self._cluster.metadata(self._stale)
        unknown = {
            topic.name or ""
            for topic in answer.topics
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        now = trio.current_time()
        self._unknown_since = {
            name: self._unknown_since.get(name, now)
            for name in self._unknown_since.keys() | unknown
            if name in unknown or name not in self._stale
        }
        self._stale.clear()
        for progress in self._task_ranges:
            name = progress.at.topic
            if progress.is_fetched:
                continue
            if name in self._unknown_since:
                self._stale.add(name)
                if now - self._unknown_since[name] >= GONE_AFTER_S:
                    self._lose(progress.lose_rest(f"there is no topic {name!r} any more"))
            elif name in self._cluster.topics:
                topic_id = uuid_text(self._cluster.topics[name].topic_id)
                progress.topic_id = progress.topic_id or topic_id
                if progress.topic_id != topic_id:
                    self._lose(progress.lose_rest(f"topic {name!r} was deleted and created again"))
        current = self._task_ranges.current()
        if current is not None and current.at.topic in self._stale:
            raise RefusedError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {current.at.topic!r}"
            )

    def _lose(self, sentence: str) -> None:
        if self._options.fail_on_data_loss:
            raise data_loss(sentence)
        logger.warning("%s", sentence)

    async def _link(self, node: NodeId) -> Pipeline:
        link = self._links.get(node)
        if link is None:
            address = self._cluster.address_of(node)
            if address is None:
                raise ConnectionLostError(f"broker {node} is not known to the cluster")
            link = await self._cluster.connect(
                address,
                client_id=self._config.client_id,
                timeout_s=self._config.request_timeout_ms / 1_000,
            )
            self._links[node] = link
        return link

    async def _drop(self, node: NodeId) -> None:
        link = self._links.pop(node, None)
        if link is not None:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                await link.aclose()


@asynccontextmanager
async def open_range_fetcher(
    ranges: Sequence[OffsetRange], options: ReadOptions
) -> AsyncIterator[RangeFetcher]:
    """Open and yield a fetcher of offset ranges from the cluster that `options` name. Its
    connections are closed at the end of the caller's block."""
    config = options.consumer_config()
    async with open_cluster(
        addresses_of(options.bootstrap),
        client_id=config.client_id,
        request_timeout_s=config.request_timeout_ms / 1_000,
        login=config.login(),
        tls=config.tls(),
    ) as cluster:
        fetcher = RangeFetcher(cluster, ranges, options)
        try:
            yield fetcher
        finally:
            await fetcher.aclose()
