"""Sends transaction markers: one task and one connection for each broker with waiting markers.

Markers for this broker itself need no connection. While a request is in flight, the markers of all
transactions accumulate, and are sent with the next request.

An unanswered request is sent again, to the leader in the metadata. This is safe, because a
repeated marker has no further effect. An unreachable broker delays only its own markers.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial

import trio

from ottla.broker.cluster.peer_connection_driver import expected_peer
from ottla.broker.transactions.markers import MarkerBatch, MarkerOrder, MarkerQueues
from ottla.client.network.connection import BrokerConnection, open_connection
from ottla.client.network.login import starter_of
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.model.errors import ErrorCode, OttlaError, RefusedError, only_error
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.settings.broker import BrokerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.network.loopback_driver import Loopback
from ottla.node.part_registry import PartRegistry
from ottla.wire.messages.write_txn_markers_response import WriteTxnMarkersResponse

logger = logging.getLogger("ottla.broker.transactions")

CONNECT_TIMEOUT_S = 5.0
RETRY_MS_FIRST = 20
RETRY_MS_MAX = 1_000
"""Maximum milliseconds before transaction markers are sent again after a failure. With a smaller
value, a new leader is found sooner. With a larger value, a starting broker gets fewer requests."""

FAILURES_TOLERATED = 6
"""Number of consecutive failures to send transaction markers to a broker after which the failure is
logged, once. This number of failures takes about two seconds."""

IDLE_S = 60.0
"""Seconds after which an unused connection for transaction markers is closed."""


class MarkerSender:
    """Sender of all transaction markers of this broker. `on_marked` is called when partitions have
    received their marker. Its arguments are the marker order (the partitions of one transaction)
    and these partitions."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        on_marked: Callable[[MarkerOrder, frozenset[TopicPartition]], None],
        one_flush: Callable[[], AbstractContextManager[None]] = nullcontext,
        errors: UnexpectedErrors | None = None,
        own: Loopback | None = None,
    ) -> None:
        """Create a sender without transaction markers. In the context of `one_flush`, the
        completions of all transactions of one response are written together.

        `own` is the loopback for requests that this broker sends to itself. If it is None, the
        broker opens a connection to itself.
        """
        self._own = own
        self._config = config
        self._errors = errors or UnexpectedErrors()
        self._on_marked = on_marked
        self._one_flush = one_flush
        self._queues = MarkerQueues(self._note_marked)
        self._orders: dict[int, dict[MarkerOrder, None]] = {}
        """Marker orders (one per transaction) whose markers are not all written, by partition of
        `__transaction_state`, the oldest first."""
        self._channels: dict[NodeId, MarkerChannel] = {}
        self._nursery: trio.Nursery | None = None
        self._start_soon: Callable[..., None]
        self.image: MetadataImage = EMPTY
        self.superseded_count = 0
        """Number of transactions that a newer coordinator or producer ended in place of this
        broker."""

    @property
    def name(self) -> str:
        """Name of this metadata publisher (a component that applies each new metadata image), for
        fault reports."""
        return "transaction markers"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Queue the transaction markers of partitions that now have a leader and had no leader
        before."""
        self.image = image
        self._queues.reroute(image)
        self._wake()

    def send(self, order: MarkerOrder) -> None:
        """Send the markers of a transaction to the leaders of the transaction's partitions."""
        self._orders.setdefault(order.state_partition, {})[order] = None
        self._queue(order, frozenset(order.missing))

    def cancel(self, state_partition: int) -> None:
        """Stop sending the markers of all transactions that are stored in one partition of
        `__transaction_state`."""
        for order in self._orders.pop(state_partition, ()):
            order.is_cancelled = True

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task that sends transaction markers, its metrics and its problem
        reports."""
        parts.task("transaction markers", self.run)
        parts.figures(self.metrics)
        parts.problems(self.problems)

    async def run(self) -> None:
        """Send transaction markers until cancelled."""
        async with trio.open_nursery() as nursery:
            self._start_soon = starter_of(nursery)
            self._nursery = nursery
            self._channels.clear()
            for orders in list(self._orders.values()):
                for order in orders:
                    # The progress of an earlier nursery is unknown.
                    self._queues.add(order, frozenset(order.missing), self.image)
            self._wake()
            try:
                await trio.sleep_forever()
            finally:
                # Before the nursery closes, so that later markers wait for the next one.
                self._nursery = None

    def metrics(self) -> dict[str, float]:
        """Return the number of waiting transaction markers, and other counters about sending them,
        by metric name."""
        return {
            "transactions.markers.waiting": self._queues.waiting_count,
            "transactions.markers.unknown.destination": self._queues.unknown_count,
            "transactions.markers.superseded": self.superseded_count,
        }

    def problems(self) -> Iterator[str]:
        """Yield a problem description for each broker that accepts no transaction markers."""
        for channel in self._channels.values():
            if channel.failure is not None:
                yield f"broker {channel.node_id} accepts no transaction markers: {channel.failure}"

    def _note_marked(self, order: MarkerOrder, partitions: frozenset[TopicPartition]) -> None:
        self._on_marked(order, partitions)
        if not order.missing:
            self._orders.get(order.state_partition, {}).pop(order, None)

    def _queue(self, order: MarkerOrder, partitions: frozenset[TopicPartition]) -> None:
        self._queues.add(order, partitions, self.image)
        self._wake()

    def _wake(self) -> None:
        if self._nursery is None:
            return
        for node_id in self._queues.brokers():
            channel = self._channels.get(node_id)
            if channel is None:
                channel = self._channels[node_id] = MarkerChannel(
                    self, node_id, self._config, self._own
                )
                self._start_soon(self._run_channel, channel)
            channel.has_work.set()

    async def _run_channel(self, channel: "MarkerChannel") -> None:
        while True:
            try:
                await channel.run()
            # `except*`, since a bug may arrive together with a cancellation, which must continue.
            except* Exception as group:
                error = only_error(group)
                if not isinstance(error, OttlaError):
                    self._errors.note("markers", f"to broker {channel.node_id}", error)
                channel.failure = str(error) or repr(error)
            if channel.failure is None:
                if not channel.has_work.is_set():
                    del self._channels[channel.node_id]
                    return
                continue
            channel.failure_count += 1
            if channel.failure_count == FAILURES_TOLERATED:
                logger.warning(
                    "broker %s accepts no transaction markers: %s", channel.node_id, channel.failure
                )
            backoff_ms = RETRY_MS_FIRST << min(channel.failure_count - 1, 10)
            await trio.sleep(min(backoff_ms, RETRY_MS_MAX) / 1000)
            self._reroute_all_of(channel)
            if not channel.has_work.is_set():
                del self._channels[channel.node_id]
                return

    def _reroute_all_of(self, channel: "MarkerChannel") -> None:
        """Queue the transaction markers for an unreachable broker again, for the current leaders of
        their partitions."""
        channel.has_work = trio.Event()
        batches = []
        while (batch := self._queues.take(channel.node_id)) is not None:
            batches.append(batch)
        for batch in batches:
            for order, partitions in batch.parts.items():
                self._queues.add(order, partitions, self.image)
        self._wake()

    # ---- interface for channels

    def take(self, node_id: NodeId) -> MarkerBatch | None:
        """Return the next batch of transaction markers for a broker, or None if no marker is
        queued."""
        return self._queues.take(node_id)

    def give_back(self, batch: MarkerBatch) -> None:
        """Queue the transaction markers of a batch again, because the request was not answered."""
        for order, partitions in batch.parts.items():
            self._queue(order, partitions)

    def settle(self, batch: MarkerBatch, response: WriteTxnMarkersResponse) -> None:
        """Apply a broker's response to a batch of transaction markers. Refused markers are retried
        later."""
        with self._one_flush():
            settled = self._queues.settle(batch, response)
        for order in settled.superseded:
            logger.info("the markers of %s are left to a newer epoch", order.transactional_id)
            self._orders.get(order.state_partition, {}).pop(order, None)
            self.superseded_count += 1
        if settled.retried and self._nursery is not None:
            retry = partial(self._queue_later, MarkerBatch(dict(settled.retried)))
            self._start_soon(retry)

    async def _queue_later(self, batch: MarkerBatch) -> None:
        await trio.sleep(RETRY_MS_FIRST / 1000)
        self.give_back(batch)


class MarkerChannel:
    """Task that sends transaction markers to one broker over one connection."""

    def __init__(
        self,
        sender: MarkerSender,
        node_id: NodeId,
        config: BrokerConfig,
        own: Loopback | None,
    ) -> None:
        self.node_id = node_id
        self._own = own if node_id == config.node_id else None
        self.has_work = trio.Event()
        self.failure: str | None = None
        """Reason why the broker currently accepts no transaction markers, or None if it accepts
        them."""
        self.failure_count = 0
        """Number of failures to send transaction markers since the broker's last response."""
        self._sender = sender
        self._config = config

    async def run(self) -> None:
        """Send batches of transaction markers over one connection, until no marker is queued for
        IDLE_S.

        Raises OttlaError if the broker is unreachable.
        """
        async with self._open() as connection:
            while True:
                with trio.move_on_after(IDLE_S):
                    await self.has_work.wait()
                if not self.has_work.is_set():
                    return
                self.has_work = trio.Event()
                while (batch := self._sender.take(self.node_id)) is not None:
                    await self._ask(connection, batch)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[BrokerConnection | Loopback]:
        if self._own is not None:
            yield self._own
            return
        host, port = self._address()
        async with open_connection(
            host,
            port,
            client_id=f"broker-{self._config.node_id}-transactions",
            timeout_s=CONNECT_TIMEOUT_S,
            expected=expected_peer(self.node_id),
        ) as connection:
            yield connection

    async def _ask(self, connection: BrokerConnection | Loopback, batch: MarkerBatch) -> None:
        response: WriteTxnMarkersResponse | None = None
        try:
            with trio.move_on_after(self._config.request_timeout_ms / 1000):
                response = await connection.request(batch.request(), WriteTxnMarkersResponse)
            if response is None:
                raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, "it did not answer in time")
        finally:
            if response is None:
                self._sender.give_back(batch)
        self.failure, self.failure_count = None, 0
        self._sender.settle(batch, response)

    def _address(self) -> tuple[str, int]:
        name = self._config.inter_broker_listener
        broker = self._sender.image.brokers.get(self.node_id)
        endpoint = None if broker is None else broker.endpoint(name)
        if endpoint is None:
            raise RefusedError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"it is not registered with a listener {name}"
            )
        return endpoint.host, endpoint.port
