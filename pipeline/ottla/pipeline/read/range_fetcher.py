"""Fetches ranges from their leaders, one request ahead of whoever decodes.

`next` waits for an answer, sends the next request and only then hands the answer over: the broker
works and the kernel receives while the caller decodes, and nobody competes with it for the
interpreter.  Leaders that move and brokers that restart are sat out for as long as the user allows;
records that are gone are an error, or a warning where the user says so.
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
from ottla.client.network.pipeline import Pipeline, Submitted
from ottla.model.errors import CorruptDataError, ErrorCode, ProtocolError, RefusedError, row_of
from ottla.model.ids import NO_EPOCH, ZERO_UUID, Epoch, NodeId, TopicPartition, uuid_text
from ottla.pipeline.read.fetched_batches import FetchedBatches
from ottla.pipeline.read.range_course import RANGES_PER_FETCH_MAX, Courses, RangeCourse, data_loss
from ottla.pipeline.read.ranges import OffsetRange
from ottla.pipeline.read.read_options import ReadOptions
from ottla.wire.apis import FETCH, FETCH_TOPIC_IDS_FROM
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse, PartitionData
from ottla.wire.offset_timestamps import EARLIEST, LATEST

logger = logging.getLogger("ottla.pipeline")

GONE_AFTER_S = 5.0
"""A topic that nobody knows for so long is gone; a broker that just started may not know it yet."""
PATIENCE_S = 10.0
"""How much longer than its own wait a fetch may take."""


class RangeRequest(NamedTuple):
    """A request that has left, and what it asked whom."""

    node: NodeId
    courses: dict[TopicPartition, RangeCourse]
    submitted: Submitted[FetchResponse]


class RangeFetcher:
    """Fetches the ranges of one task; made by `open_range_fetcher`."""

    def __init__(self, cluster: Cluster, ranges: Sequence[OffsetRange], options: ReadOptions):
        lookback = options.replay_lookback_count if options.drop_replays else 0
        self._courses = Courses(ranges, lookback)
        self._cluster = cluster
        self._options = options
        self._config = options.consumer_config()
        self._links: dict[NodeId, Pipeline] = {}
        self._asked: RangeRequest | None = None
        self._stale = {one.topic for one in ranges}
        """Topics to ask the cluster about before anything else."""
        self._unknown_since: dict[str, float] = {}
        self._trouble = "nobody answered"

    async def next(self) -> tuple[RangeCourse, FetchedBatches] | None:
        """Return what comes next of the first range that is not done; None behind the last.

        RefusedError: records are lost (OFFSET_OUT_OF_RANGE), nothing came in the time that
        `poll_timeout_ms` gives (REQUEST_TIMED_OUT), or the cluster refuses for good.
        """
        with trio.move_on_after(self._options.poll_timeout_ms / 1_000):
            return await self._next()
        course = self._courses.current()
        assert course is not None
        raise RefusedError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"offset {course.position} of {course.at} did not come within "
            f"{self._options.poll_timeout_ms} ms: {self._trouble}",
        )

    async def aclose(self) -> None:
        """Close the connections."""
        for node in list(self._links):
            await self._drop(node)

    async def _next(self) -> tuple[RangeCourse, FetchedBatches] | None:
        while (course := self._courses.current()) is not None:
            is_given = course.held is not None
            fetched = course.give() if is_given else None
            try:
                if is_given:
                    if self._asked is None:
                        await self._ask()
                elif self._asked is not None:
                    await self._take_answer()
                elif course.is_out_of_range:
                    await self._find_bounds(course)
                else:
                    await self._ask()
            except (ConnectionLostError, ProtocolError, RefusedError) as error:
                if isinstance(error, RefusedError) and not error.is_retriable:
                    raise
                self._trouble = str(error)
                self._stale |= {one.at.topic for one in self._courses.hungry()}
                if not is_given:
                    await trio.sleep(self._config.retry_backoff_ms / 1_000)
            if fetched is not None:
                return course, fetched
        return None

    async def _ask(self) -> None:
        """Send a request for the first range that wants more, and those its leader has too."""
        if self._stale:
            await self._refresh()
        first = next(self._courses.hungry(), None)
        if first is None:
            return
        leader = self._cluster.known_leader(first.at)
        if leader is None:
            raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, f"{first.at} has no leader")
        courses: dict[TopicPartition, RangeCourse] = {}
        for course in self._courses.hungry():
            known = self._cluster.known_leader(course.at)
            if known is not None and known.node == leader.node:
                courses.setdefault(course.at, course)
            if len(courses) == RANGES_PER_FETCH_MAX:
                break
        link = await self._link(leader.node)
        version = link.version_of(FETCH)
        if any(self._cluster.topics[at.topic].topic_id == ZERO_UUID for at in courses):
            version = min(version, FETCH_TOPIC_IDS_FROM - 1)
        try:
            submitted = await link.submit(self._request(courses), FetchResponse, version)
        except ConnectionLostError:
            await self._drop(leader.node)
            raise
        self._asked = RangeRequest(leader.node, courses, submitted)

    def _request(self, courses: dict[TopicPartition, RangeCourse]) -> FetchRequest:
        config = self._config
        topics: dict[str, FetchTopic] = {}
        for at, course in courses.items():
            leader = self._cluster.known_leader(at)
            topic = topics.setdefault(
                at.topic,
                FetchTopic(topic=at.topic, topic_id=self._cluster.topics[at.topic].topic_id),
            )
            topic.partitions.append(
                FetchPartition(
                    partition=at.partition,
                    current_leader_epoch=NO_EPOCH if leader is None else leader.epoch,
                    fetch_offset=course.position,
                    partition_max_bytes=config.partition_bytes_max,
                )
            )
        return FetchRequest(
            max_wait_ms=config.fetch_wait_ms_max,
            min_bytes=config.fetch_bytes_min,
            # As much as one partition may have: what the first range has goes before all others'.
            max_bytes=min(config.fetch_bytes_max, config.partition_bytes_max),
            isolation_level=ISOLATION[self._options.isolation_level],
            topics=list(topics.values()),
        )

    async def _take_answer(self) -> None:
        assert self._asked is not None
        (node, courses, submitted), self._asked = self._asked, None
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
        names = {self._cluster.topics[at.topic].topic_id: at.topic for at in courses}
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                course = courses.get(TopicPartition(name, data.partition_index))
                if course is not None and course.held is None:
                    self._take_partition(course, data)
        if self._stale:
            await trio.sleep(self._config.retry_backoff_ms / 1_000)

    def _take_partition(self, course: RangeCourse, data: PartitionData) -> None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            course.is_out_of_range = True
        elif data.error_code != ErrorCode.NONE:
            row = row_of(data.error_code)
            if not row.is_retriable:
                raise RefusedError(ErrorCode(row.code), f"{course.at}: {row.meaning}")
            self._trouble = f"{course.at}: {row.meaning}"
            hint = data.current_leader
            leader = KnownLeader(NodeId(hint.leader_id), Epoch(hint.leader_epoch))
            if not self._cluster.learn_leader(course.at, leader):
                self._stale.add(course.at.topic)
        elif data.records:
            assert isinstance(data.records, memoryview | bytes)
            aborted = None
            if self._options.isolation_level == "read_committed":
                found = data.aborted_transactions or ()
                aborted = [(one.producer_id, one.first_offset) for one in found]
            try:
                fetched = FetchedBatches(
                    data.records,
                    course.position,
                    course.range.end,
                    aborted=aborted,
                    check_crcs=self._config.check_crcs,
                )
            except CorruptDataError as error:
                raise CorruptDataError(f"{course.at}: {error.where}") from error
            course.take(fetched)
        else:
            self._trouble = f"{course.at} has no records there yet"

    async def _find_bounds(self, course: RangeCourse) -> None:
        """Learn where the log begins and ends, and whether records of the range are gone."""
        at = course.at
        patience_s = self._config.request_timeout_ms / 1_000
        (earliest, latest) = [
            (await find_offsets(self._cluster, {at: time_ms}, timeout_s=patience_s))[at].offset
            for time_ms in (EARLIEST, LATEST)
        ]
        lost = course.on_log_bounds(earliest, latest)
        if lost is not None:
            self._lose(lost)

    async def _refresh(self) -> None:
        """Ask who leads the stale topics, and whether they are still the ones they were."""
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
        for course in self._courses:
            name = course.at.topic
            if course.is_fetched:
                continue
            if name in self._unknown_since:
                self._stale.add(name)
                if now - self._unknown_since[name] >= GONE_AFTER_S:
                    self._lose(course.lose_rest(f"there is no topic {name!r} any more"))
            elif name in self._cluster.topics:
                topic_id = uuid_text(self._cluster.topics[name].topic_id)
                course.topic_id = course.topic_id or topic_id
                if course.topic_id != topic_id:
                    self._lose(course.lose_rest(f"topic {name!r} was deleted and created again"))
        current = self._courses.current()
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
    """Fetch ranges from the cluster that `options` names; close the connections at the end."""
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
