"""Connection of a producer to one broker. It sends batches and receives the responses in order.

The connection makes no decisions: the accumulator selects the batches and interprets the responses.
If the connection is lost, all batches in flight on it are returned to the accumulator as lost.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING
from uuid import UUID

import trio

from ottla.client.network.background import WakeUp, now_ms, open_background
from ottla.client.network.broker_link import BrokerLink, Loss, watch_responses
from ottla.client.network.cluster import Cluster, KnownLeader
from ottla.client.network.pipeline import Pipeline, RequestInFlight
from ottla.client.produce.accumulator import NO_RECORD_ERRORS, Accumulator
from ottla.client.produce.partition_queue import BatchOutcome, ProducerBatch
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, Epoch, NodeId, TopicPartition
from ottla.model.settings.client import ProducerConfig
from ottla.wire.apis import PRODUCE, PRODUCE_TOPIC_IDS_FROM
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import PartitionProduceResponse, ProduceResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)
"""Error codes which mean that the client must look up the leaders of partitions again."""
ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}


class ProduceExchange:
    """A Produce request in flight, and its batches."""

    __slots__ = ("batches", "submitted", "until_s")

    def __init__(self, batches: "Sequence[ProducerBatch]", until_s: float) -> None:
        self.batches = batches
        self.until_s = until_s
        self.submitted: RequestInFlight[ProduceResponse] | None = None


class ProducerLink(BrokerLink):
    """Task that sends the batches of the partitions that one broker leads, over a connection of its
    own."""

    def __init__(
        self,
        node: NodeId,
        *,
        cluster: Cluster,
        gathered: Accumulator,
        config: ProducerConfig,
        on_change: Callable[[TopicPartition | None], None],
        on_delivered: Callable[[TopicPartition, NodeId], None],
    ) -> None:
        super().__init__(node, cluster, config)
        self._gathered = gathered
        self._config = config
        self._on_change = on_change
        """Function to call after batches have failed or were returned. Its argument is a partition
        whose leader has to be looked up, or None."""
        self._on_delivered = on_delivered
        """Function to call after this link's broker has acknowledged a batch of a partition. It
        wakes fewer tasks than `on_change`; this link looks for work itself."""
        self._acks = ACKS[str(config.acks)]
        self._in_flight: deque[ProduceExchange] = deque()
        self._arrivals = WakeUp()
        self._is_sending = False
        self._is_reader_sending = False
        """True while the task that reads responses sends a request. It reads no response meanwhile,
        even if one has arrived."""
        self._next_look_ms: int | None = None
        """Time, in ms on the event loop's clock, at which a batch that is not ready yet becomes
        ready or expires. None if there is no such batch."""
        self._sleeps_until_ms: int | None = None
        """Time, in ms, until which the sending task sleeps at most. None if it sleeps until it is
        woken."""

    def _has_work(self) -> bool:
        return bool(self._partitions())

    async def _serve(self, pipeline: Pipeline) -> None:
        async with open_background() as nursery:
            nursery.start_soon(self._receive, pipeline)
            nursery.start_soon(
                partial(
                    watch_responses,
                    pipeline,
                    self._due_s,
                    self._overdue,
                    patience_s=self._config.request_timeout_ms / 1_000,
                )
            )
            await self._send(pipeline)

    def _partitions(self) -> list[TopicPartition]:
        known_leader, node = self._cluster.known_leader, self.node
        return [
            at
            for at in self._gathered.waiting_partitions()
            if (leader := known_leader(at)) is not None and leader.node == node
        ]

    async def _send(self, pipeline: Pipeline) -> None:
        while True:
            await self._send_ready(pipeline)
            # If another task is sending, it wakes this one for a batch that is not ready yet.
            self._sleeps_until_ms = None if self._is_sending else self._next_look_ms
            await self.wake_up.wait(self._sleeps_until_ms)

    async def _send_ready(self, pipeline: Pipeline) -> None:
        """Send the batches that are ready, as many as may be in flight. Does nothing if another
        task is already sending: that task looks for ready batches again after each request."""
        if self._is_sending:
            return
        self._is_sending = True
        try:
            while True:
                now = now_ms()
                batches: list[ProducerBatch] = []
                if len(self._in_flight) < self._config.in_flight_count_max:
                    batches = self._gathered.drain(self._partitions(), now)
                if not batches:
                    self._next_look_ms = self._gathered.next_look_ms(now)
                    return
                await self._send_one(pipeline, batches)
        finally:
            self._is_sending = False

    async def _send_one(self, pipeline: Pipeline, batches: list[ProducerBatch]) -> None:
        exchange = ProduceExchange(
            batches, trio.current_time() + self._config.request_timeout_ms / 1_000
        )
        self._in_flight.append(exchange)
        request, version = self._request(pipeline, batches)
        trace_context = self._trace_context(pipeline, exchange)
        if self._acks == 0:
            await pipeline.send(request, version, trace_context)
            self._in_flight.remove(exchange)
            for batch in batches:
                self._gathered.on_acknowledged(batch)
                self._on_delivered(batch.partition, self.node)
            return
        exchange.submitted = await pipeline.submit(request, ProduceResponse, version, trace_context)
        self._arrivals.set()

    def _due_s(self) -> float:
        return self._first_due.until_s if self._in_flight else inf

    @property
    def _first_due(self) -> ProduceExchange:
        """The request in flight that is due first. Requests are answered in order, so it is the
        first one. But while the task that reads responses sends a request, earlier responses may
        have arrived and are not read, and only that request can be overdue."""
        return self._in_flight[-1 if self._is_reader_sending else 0]

    def _overdue(self) -> str:
        if self._first_due.submitted is None:
            return "does not read"
        return f"did not answer in {self._config.request_timeout_ms} ms"

    def _trace_context(self, pipeline: Pipeline, exchange: ProduceExchange) -> bytes | None:
        """Return the `traceparent` of the span of a request that is about to be sent. Producers
        without tracing return None.
        """
        return None

    def _request(
        self, pipeline: Pipeline, batches: list[ProducerBatch]
    ) -> tuple[ProduceRequest, int]:
        topics: dict[str, TopicProduceData] = {}
        version = min(pipeline.version_of(PRODUCE), self._gathered.produce_version_max)
        for batch in batches:
            name, index = batch.partition
            data = topics.get(name)
            if data is None:
                known = self._cluster.topics.get(name)
                topic_id = ZERO_UUID if known is None else known.topic_id
                if topic_id == ZERO_UUID:
                    version = min(version, PRODUCE_TOPIC_IDS_FROM - 1)
                data = topics[name] = TopicProduceData(name=name, topic_id=topic_id)
            data.partition_data.append(PartitionProduceData(index=index, records=batch.encoded))
        request = ProduceRequest(
            transactional_id=self._config.transactional_id,
            acks=self._acks,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        return request, version

    async def _receive(self, pipeline: Pipeline) -> None:
        while True:
            while not self._in_flight or self._in_flight[0].submitted is None:
                await self._arrivals.wait()
            exchange = self._in_flight[0]
            assert exchange.submitted is not None
            answer = await exchange.submitted.answer()
            self._in_flight.popleft()
            self._take(exchange, answer)
            # Not by the sending task: waking it for each answer would cost as much as the answer.
            if not self._is_sending:
                self._is_reader_sending = True
                try:
                    await self._send_ready(pipeline)
                finally:
                    self._is_reader_sending = False
            next_look_ms, until_ms = self._next_look_ms, self._sleeps_until_ms
            if next_look_ms is not None and (until_ms is None or next_look_ms < until_ms):
                # The sending task fell asleep before the batch was the next one of its partition.
                self.wake_up.set()

    def _take(self, exchange: ProduceExchange, answer: ProduceResponse) -> None:
        if answer.throttle_time_ms:
            self._gathered.measures.throttle_times_ms.note(answer.throttle_time_ms)
        for endpoint in answer.node_endpoints:
            self._cluster.learn_address(NodeId(endpoint.node_id), endpoint.host, endpoint.port)
        found: dict[tuple[str | UUID, int], PartitionProduceResponse] = {}
        for topic in answer.responses:
            for partition in topic.partition_responses:
                found[topic.name or topic.topic_id, partition.index] = partition
        for batch in exchange.batches:
            name, index = batch.partition
            known = self._cluster.topics.get(name)
            outcome = found.get((name, index))
            if outcome is None and known is not None:
                outcome = found.get((known.topic_id, index))
            if outcome is None:
                self._gathered.on_lost(batch, "the answer does not name the partition", now_ms())
                self._on_change(batch.partition)
            else:
                self._take_partition(batch, outcome)

    def _take_partition(self, batch: ProducerBatch, outcome: PartitionProduceResponse) -> None:
        fate = self._gathered.on_answer(
            batch,
            outcome.error_code,
            outcome.error_message,
            now_ms(),
            base_offset=outcome.base_offset,
            log_append_time_ms=outcome.log_append_time_ms,
            record_errors={
                one.batch_index: one.batch_index_error_message for one in outcome.record_errors
            }
            if outcome.record_errors
            else NO_RECORD_ERRORS,
        )
        if fate is BatchOutcome.DELIVERED:
            self._on_delivered(batch.partition, self.node)
            return
        stale = None
        if outcome.error_code in MOVED and fate is BatchOutcome.RETRIED:
            hint = outcome.current_leader
            if not self._cluster.learn_leader(
                batch.partition, KnownLeader(NodeId(hint.leader_id), Epoch(hint.leader_epoch))
            ):
                stale = batch.partition
        self._on_change(stale)

    def _lose(self, why: Loss) -> None:
        """Return all batches in flight to the accumulator as lost, since they may or may not have
        been written."""
        for exchange in self._in_flight:
            for batch in exchange.batches:
                self._gathered.on_lost(batch, str(why), now_ms())
        self._in_flight.clear()
        for at in self._partitions():
            self._on_change(at)
        self._on_change(None)
