"""Connection over which a consumer fetches records from one broker, with one request at a time, in
one fetch session.

A link fetches the partitions that its broker leads and that `positions` reports as fetchable. It
passes the responses to `positions`.
"""

from collections.abc import Callable
from functools import partial
from math import inf

import trio

from ottla.client.fetch.fetch_session import FetchSessionHandler, TopicKey
from ottla.client.fetch.fetched import FetchedRecords
from ottla.client.fetch.offset_lookup import ISOLATION
from ottla.client.fetch.positions import PartitionPlace, Positions
from ottla.client.network.background import now_ms, open_background
from ottla.client.network.broker_link import BrokerLink, Loss, watch_responses
from ottla.client.network.cluster import Cluster, KnownLeader
from ottla.client.network.pipeline import Pipeline
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError, row_of
from ottla.model.ids import (
    NO_EPOCH,
    ZERO_UUID,
    Epoch,
    NodeId,
    Offset,
    OffsetAndEpoch,
    TopicIdPartition,
    TopicPartition,
)
from ottla.model.settings.client import ConsumerConfig
from ottla.wire.apis import FETCH, FETCH_TOPIC_IDS_FROM
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest
from ottla.wire.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)

DIVERGENCE_FROM = 12
"""First version of Fetch whose request contains the epoch of the last fetched record. From this
epoch, the broker detects diverging logs (KIP-595)."""
NO_VERSION = -1
PATIENCE_MS = 10_000
"""Time in ms that the client waits for the response to a Fetch request, in addition to
`fetch.max.wait.ms`. With a smaller value, the client drops connections to slow brokers. With a
larger value, it detects a hanging broker later."""


class PartitionRequest:
    """A partition's part of a Fetch request. It is compared with the partition's response."""

    __slots__ = ("fetch", "move_count", "place")

    def __init__(self, place: PartitionPlace) -> None:
        self.place = place
        self.move_count = place.move_count
        self.fetch = place.fetch

    def is_still(self, place: PartitionPlace) -> bool:
        """Return whether the last request for the partition is still valid: its `PartitionPlace`
        and fetch position have not changed.

        A partition that was revoked and assigned again has another `PartitionPlace`, so it is
        requested again.
        """
        return self.is_unmoved(place) and self.fetch == place.fetch

    def is_unmoved(self, place: PartitionPlace) -> bool:
        """Return whether only reading has moved the position since the request. Returns False after
        a seek or a reset."""
        return self.place is place and self.move_count == place.move_count


class FetchLink(BrokerLink):
    """Task that fetches the assigned partitions that one broker leads, over a connection of its
    own."""

    def __init__(
        self,
        node: NodeId,
        *,
        cluster: Cluster,
        positions: Positions,
        config: ConsumerConfig,
        on_records: Callable[[], None],
        on_moved: Callable[[], None],
        on_stale: Callable[[str], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        super().__init__(node, cluster, config)
        self._positions = positions
        self._config = config
        self._on_records = on_records
        self._on_moved = on_moved
        """Function to call after a position or a leader has changed."""
        self._on_stale = on_stale
        self._on_failure = on_failure
        self._version = NO_VERSION
        """Version of Fetch in the session.  A change of version needs a new session."""
        self._session = FetchSessionHandler()
        self._session_error_count = 0
        """Number of successive responses by which the broker refused the fetch session. The first
        refusal is retried at once."""
        self._asked: dict[TopicKey, tuple[PartitionRequest, Epoch]] = {}
        self._due_s = inf
        """Time on the event loop's clock, in seconds, until which the response to the current
        request must have arrived.  Infinite if no request is in flight."""

    def _has_work(self) -> bool:
        return bool(self._wanted())

    def _lose(self, why: Loss) -> None:
        if isinstance(why, RefusedError) and why.code is ErrorCode.UNSUPPORTED_VERSION:
            self._on_failure(why)
        self._begin_session(NO_VERSION)
        for place in self._wanted():
            self._on_stale(place.at.topic)
            self._leave_preferred(place)

    def _wanted(self) -> list[PartitionPlace]:
        known_leader, node, now = self._cluster.known_leader, self.node, now_ms()
        return [
            place
            for place in self._positions.fetchable()
            if (leader := known_leader(place.at)) is not None
            and (leader.node if place.preferred_node is None else self._source(place, leader, now))
            == node
            and place.at.topic in self._cluster.topics
        ]

    def _source(self, place: PartitionPlace, leader: KnownLeader, now: int) -> NodeId:
        """Return the broker to fetch a partition from that has a preferred replica. If the replica
        is not valid any longer, the leader's link is woken, which may have no other partition."""
        source = place.source_of(leader.node, now)
        if place.preferred_node is None:
            self._on_moved()
        return source

    def _leave_preferred(self, place: PartitionPlace) -> bool:
        """Fetch a partition from its leader again if this link's broker is the partition's
        preferred replica. Returns True if the broker was the preferred replica."""
        if place.preferred_node != self.node:
            return False
        place.preferred_node = None
        self._on_moved()
        return True

    async def _serve(self, pipeline: Pipeline) -> None:
        self._due_s = inf
        async with open_background() as nursery:
            nursery.start_soon(
                partial(
                    watch_responses,
                    pipeline,
                    lambda: self._due_s,
                    lambda: "did not answer a fetch",
                    patience_s=PATIENCE_MS / 1_000,
                )
            )
            await self._fetch_all(pipeline)

    async def _fetch_all(self, pipeline: Pipeline) -> None:
        highest = pipeline.version_of(FETCH)
        while True:
            self.wake_up.clear()
            wanted = self._wanted()
            if not wanted:
                await self.wake_up.wait()
                continue
            topics = self._cluster.topics
            # The broker that answered the Metadata request may not have known topic ids yet.
            has_ids = highest >= FETCH_TOPIC_IDS_FROM and all(
                topics[place.at.topic].topic_id != ZERO_UUID for place in wanted
            )
            version = highest if has_ids else min(highest, FETCH_TOPIC_IDS_FROM - 1)
            if version != self._version:
                self._begin_session(version)
            has_changed = self._update_session({self._key_of(place): place for place in wanted})
            await self._fetch_once(pipeline, is_hasty=has_changed)

    def _begin_session(self, version: int) -> None:
        self._version = version
        self._session = FetchSessionHandler()
        self._asked.clear()

    def _key_of(self, place: PartitionPlace) -> TopicKey:
        if self._version < FETCH_TOPIC_IDS_FROM:
            return place.at
        return TopicIdPartition(self._cluster.topics[place.at.topic].topic_id, place.at.partition)

    def _update_session(self, wanted: dict[TopicKey, PartitionPlace]) -> bool:
        """Update the fetch session to the wanted partitions. Returns True if a partition was added
        to the session or its position was moved."""
        has_changed = False
        for at in [at for at in self._asked if at not in wanted]:
            self._session.forget(at)
            del self._asked[at]
        for at, place in wanted.items():
            before = self._asked.get(at)
            leader = self._cluster.known_leader(place.at)
            epoch = NO_EPOCH if leader is None else leader.epoch
            if before is not None and before[0].is_still(place) and before[1] == epoch:
                continue
            has_changed |= before is None or not before[0].is_unmoved(place)
            self._asked[at] = (PartitionRequest(place), epoch)
            self._session.want(
                at,
                FetchPartition(
                    partition=at.partition,
                    current_leader_epoch=epoch,
                    fetch_offset=place.fetch.offset,
                    last_fetched_epoch=(
                        place.fetch.epoch if self._version >= DIVERGENCE_FROM else NO_EPOCH
                    ),
                    partition_max_bytes=self._config.partition_bytes_max,
                ),
            )
        return has_changed

    async def _fetch_once(self, pipeline: Pipeline, *, is_hasty: bool) -> None:
        config = self._config
        # New partitions get a response at once: they must not wait until other partitions have
        # records.
        wait_ms = 0 if is_hasty else config.fetch_wait_ms_max
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=config.fetch_bytes_min,
            max_bytes=config.fetch_bytes_max,
            isolation_level=ISOLATION[config.isolation_level],
            rack_id=config.client_rack,
        )
        self._session.fill(request)
        asked = {at: one for at, (one, _) in self._asked.items()}
        sent_s = trio.current_time()
        self._due_s = sent_s + (wait_ms + PATIENCE_MS) / 1_000
        answer = await pipeline.request(request, FetchResponse, self._version)
        self._due_s = inf
        measures = self._positions.measures
        measures.latencies_s.note(trio.current_time() - sent_s)
        if answer.throttle_time_ms:
            measures.throttle_times_ms.note(answer.throttle_time_ms)
        try:
            self._session.take(answer)
        except RefusedError as error:
            if not error.is_retriable:
                raise
            if self._session_error_count:
                await trio.sleep(config.retry_backoff_ms / 1_000)
            self._session_error_count += 1
            return
        self._session_error_count = 0
        for endpoint in answer.node_endpoints:
            self._cluster.learn_address(NodeId(endpoint.node_id), endpoint.host, endpoint.port)
        has_errors = False
        size_bytes = 0
        for topic in answer.responses:
            for data in topic.partitions:
                size_bytes += len(data.records or b"")
                has_errors |= self._take(asked, topic, data)
        if size_bytes:
            measures.fetch_bytes.note(size_bytes)
            measures.fetched_bytes += size_bytes
        if has_errors:
            await trio.sleep(config.retry_backoff_ms / 1_000)

    def _take(
        self,
        asked: dict[TopicKey, PartitionRequest],
        topic: FetchableTopicResponse,
        data: PartitionData,
    ) -> bool:
        at: TopicKey = TopicIdPartition(topic.topic_id, data.partition_index)
        if self._version < FETCH_TOPIC_IDS_FROM:
            at = TopicPartition(topic.topic, data.partition_index)
        one = asked.get(at)
        if one is None:
            return False
        try:
            return self._take_partition(one, data)
        except (RefusedError, CorruptDataError) as error:
            self._on_failure(error)
            return True

    def _take_partition(self, asked: PartitionRequest, data: PartitionData) -> bool:
        """Process the response for one partition.  Returns True if the next fetch should be
        delayed."""
        place, move_count = asked.place, asked.move_count
        place.high_watermark = Offset(data.high_watermark)
        if data.error_code and self._leave_preferred(place):
            # A follower may lack what the leader has.  The leader decides.
            if data.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
                self._on_stale(place.at.topic)
            return False
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._positions.on_out_of_range(place, move_count, asked.fetch.offset, now_ms())
            self._on_moved()
        elif data.error_code != ErrorCode.NONE:
            row = row_of(data.error_code)
            if not row.is_retriable:
                raise RefusedError(ErrorCode(row.code), f"{place.at}: {row.meaning}")
            hint = data.current_leader
            leader = KnownLeader(NodeId(hint.leader_id), Epoch(hint.leader_epoch))
            if self._cluster.learn_leader(place.at, leader):
                self._on_moved()
                return False
            self._on_stale(place.at.topic)
            return True
        elif data.preferred_read_replica >= 0:
            nearer = NodeId(data.preferred_read_replica)
            if self._cluster.address_of(nearer) is None:
                self._on_stale(place.at.topic)
                return True
            place.preferred_node = nearer
            place.preferred_until_ms = now_ms() + self._config.metadata_age_ms_max
            self._on_moved()
        elif data.diverging_epoch.end_offset >= 0:
            end = data.diverging_epoch
            self._positions.on_diverged(
                place, move_count, OffsetAndEpoch(Offset(end.end_offset), Epoch(end.epoch))
            )
            self._on_moved()
            return place.reset_count > 1  # a repeated divergence: the leader contradicts itself
        elif data.records:
            assert isinstance(data.records, memoryview | bytes)
            aborted = None
            if self._config.isolation_level == "read_committed":
                aborted = [
                    (one.producer_id, Offset(one.first_offset))
                    for one in data.aborted_transactions or ()
                ]
            fetched = FetchedRecords(
                place.at,
                asked.fetch.offset,
                asked.fetch.epoch,
                data.records,
                aborted=aborted,
                check_crcs=self._config.check_crcs,
                decoder=self._positions.decoder,
            )
            if self._positions.on_fetched(place, move_count, fetched):
                self._on_records()
        return False
