"""A consumer's connection to one broker: one fetch after the other, within one fetch session.

It asks for what `positions` says may be fetched and this broker leads, and hands over what comes.
"""

from collections.abc import Callable
from uuid import UUID

import trio

from ottla.client.background import Bell
from ottla.client.cluster import Cluster, Leader
from ottla.client.connection import ConnectionLostError
from ottla.client.fetch_session import FetchSession
from ottla.client.fetched import Fetched
from ottla.client.offset_lookup import ISOLATION
from ottla.client.pipeline import Pipeline, open_pipeline
from ottla.client.positions import Place, Positions
from ottla.model.errors import CorruptDataError, ErrorCode, ProtocolError, RefusedError, row_of
from ottla.model.ids import Epoch, NodeId, Offset, OffsetAndEpoch, TopicIdPartition
from ottla.model.settings.client import ConsumerConfig
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest
from ottla.wire.messages.fetch_response import FetchResponse, PartitionData

FETCH = 1
TOPIC_IDS_FROM = 13
PATIENCE_MS = 10_000
"""How much longer than its own wait a fetch may take."""


class Asked:
    """What was asked of one partition, to know the answer by."""

    __slots__ = ("fetch", "place", "turn")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.turn = place.turn
        self.fetch = place.fetch

    def is_still(self, place: Place) -> bool:
        """Say whether the session asks what is wanted of a partition now.

        A partition given away and taken again has another place: it begins anew.
        """
        return self.is_same_course(place) and self.fetch == place.fetch

    def is_same_course(self, place: Place) -> bool:
        """Say whether reading alone has moved the position since."""
        return self.place is place and self.turn == place.turn


class FetchLink:
    """Fetches from one broker what its partitions have."""

    def __init__(
        self,
        node: NodeId,
        *,
        cluster: Cluster,
        positions: Positions,
        config: ConsumerConfig,
        on_records: Callable[[], None],
        on_stale: Callable[[str], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.node = node
        self.bell = Bell()
        self._cluster = cluster
        self._positions = positions
        self._config = config
        self._on_records = on_records
        self._on_stale = on_stale
        self._on_failure = on_failure
        self._session = FetchSession()
        self._asked: dict[TopicIdPartition, tuple[Asked, Epoch]] = {}

    async def run(self) -> None:
        """Connect whenever there is something to fetch, until cancelled."""
        while True:
            while not self._wanted():
                await self.bell.wait()
            address = self._cluster.address_of(self.node)
            try:
                if address is None:
                    raise ConnectionLostError(f"broker {self.node} is not known to the cluster")
                pipeline = await open_pipeline(
                    *address,
                    client_id=self._config.client_id,
                    timeout_s=self._config.request_timeout_ms / 1_000,
                )
                try:
                    await self._fetch_on(pipeline)
                finally:
                    await pipeline.aclose()
            except (ConnectionLostError, ProtocolError, RefusedError) as error:
                if isinstance(error, RefusedError) and error.code is ErrorCode.UNSUPPORTED_VERSION:
                    self._on_failure(error)
                self._session = FetchSession()
                self._asked.clear()
                for place in self._wanted().values():
                    self._on_stale(place.at.topic)
                await trio.sleep(self._config.retry_backoff_ms / 1_000)

    def _wanted(self) -> dict[TopicIdPartition, Place]:
        wanted: dict[TopicIdPartition, Place] = {}
        for place in self._positions.fetchable():
            leader = self._cluster.known_leader(place.at)
            topic = self._cluster.topics.get(place.at.topic)
            if leader is not None and leader.node == self.node and topic is not None:
                wanted[TopicIdPartition(topic.topic_id, place.at.partition)] = place
        return wanted

    async def _fetch_on(self, pipeline: Pipeline) -> None:
        if pipeline.version_of(FETCH) < TOPIC_IDS_FROM:
            raise RefusedError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker at {pipeline.address} fetches by topic names only",
            )
        while True:
            wanted = self._wanted()
            if not wanted:
                await self.bell.wait()
                continue
            has_news = self._tell(wanted)
            await self._fetch_once(pipeline, is_hasty=has_news)

    def _tell(self, wanted: dict[TopicIdPartition, Place]) -> bool:
        """Bring the session up to what is wanted; return whether a partition is new in it."""
        has_news = False
        for at in [at for at in self._asked if at not in wanted]:
            self._session.forget(at)
            del self._asked[at]
        for at, place in wanted.items():
            before = self._asked.get(at)
            leader = self._cluster.known_leader(place.at)
            epoch = Epoch(-1) if leader is None else leader.epoch
            if before is not None and before[0].is_still(place) and before[1] == epoch:
                continue
            has_news |= before is None or not before[0].is_same_course(place)
            self._asked[at] = (Asked(place), epoch)
            self._session.want(
                at,
                FetchPartition(
                    partition=at.partition,
                    current_leader_epoch=epoch,
                    fetch_offset=place.fetch.offset,
                    last_fetched_epoch=place.fetch.epoch,
                    partition_max_bytes=self._config.partition_bytes_max,
                ),
            )
        return has_news

    async def _fetch_once(self, pipeline: Pipeline, *, is_hasty: bool) -> None:
        config = self._config
        # What was asked for the first time is looked at at once: it shall not wait for others.
        wait_ms = 0 if is_hasty else config.fetch_wait_ms_max
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=config.fetch_bytes_min,
            max_bytes=config.fetch_bytes_max,
            isolation_level=ISOLATION[config.isolation_level],
        )
        self._session.fill(request)
        asked = {at: one for at, (one, _) in self._asked.items()}
        with trio.move_on_after((wait_ms + PATIENCE_MS) / 1_000) as scope:
            answer = await pipeline.request(request, FetchResponse)
        if scope.cancelled_caught:
            raise ConnectionLostError(f"{pipeline.address} did not answer a fetch")
        try:
            self._session.take(answer)
        except RefusedError as error:
            if not error.is_retriable:
                raise
            return
        for endpoint in answer.node_endpoints:
            self._cluster.learn_address(NodeId(endpoint.node_id), endpoint.host, endpoint.port)
        has_errors = False
        for topic in answer.responses:
            for data in topic.partitions:
                has_errors |= self._take(asked, topic.topic_id, data)
        if has_errors:
            await trio.sleep(config.retry_backoff_ms / 1_000)

    def _take(
        self, asked: dict[TopicIdPartition, Asked], topic_id: UUID, data: PartitionData
    ) -> bool:
        one = asked.get(TopicIdPartition(topic_id, data.partition_index))
        if one is None:
            return False
        try:
            return self._take_partition(one, data)
        except (RefusedError, CorruptDataError) as error:
            self._on_failure(error)
            return True

    def _take_partition(self, asked: Asked, data: PartitionData) -> bool:
        """Take in one partition's answer; return whether it was an error to wait after."""
        place, turn = asked.place, asked.turn
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._positions.on_out_of_range(place, turn)
            self._on_records()
        elif data.error_code != ErrorCode.NONE:
            row = row_of(data.error_code)
            if not row.is_retriable:
                raise RefusedError(ErrorCode(row.code), f"{place.at}: {row.meaning}")
            hint = data.current_leader
            leader = Leader(NodeId(hint.leader_id), Epoch(hint.leader_epoch))
            if self._cluster.learn_leader(place.at, leader):
                self._on_records()
                return False
            self._on_stale(place.at.topic)
            return True
        elif data.diverging_epoch.end_offset >= 0:
            end = data.diverging_epoch
            self._positions.on_diverged(
                place, turn, OffsetAndEpoch(Offset(end.end_offset), Epoch(end.epoch))
            )
            self._on_records()
        elif data.records:
            assert isinstance(data.records, memoryview | bytes)
            aborted = None
            if self._config.isolation_level == "read_committed":
                aborted = [
                    (one.producer_id, Offset(one.first_offset))
                    for one in data.aborted_transactions or ()
                ]
            fetched = Fetched(
                place.at,
                asked.fetch.offset,
                asked.fetch.epoch,
                data.records,
                aborted=aborted,
                check_crcs=self._config.check_crcs,
            )
            if self._positions.on_fetched(place, turn, fetched):
                self._on_records()
        return False
