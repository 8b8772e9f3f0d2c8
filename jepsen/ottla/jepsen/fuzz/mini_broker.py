"""A broker's core without drivers: handlers, partitions, logs, coordinators, one connection. Used
by fuzz targets and benchmarks.

Its logs are on the simulated disk, its controller decides immediately, and its clock does not
advance. Each input gets a new broker, so that an input always has the same effect.
"""

from collections.abc import Iterator
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import cache
from typing import Any
from uuid import UUID

from ottla.broker.broker_core import BrokerCore, CoordinatorPorts
from ottla.broker.cluster.describe_node import DescribeNodeApi
from ottla.broker.metrics.telemetry_apis import Done, TelemetryApis
from ottla.broker.transactions.markers import MarkerOrder
from ottla.jepsen.in_memory_controller import CountingRng, InMemoryController
from ottla.jepsen.world.disk import SimulatedDisk, brought_in
from ottla.jepsen.world.noted_errors import NotedErrors
from ottla.jepsen.world.rng import SeededRng
from ottla.jepsen.world.walk.one_disk import SequentialIds, ports_on
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.model.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.model.limits import KIB
from ottla.model.log_limiter import LogLimiter
from ottla.model.run_now import run_now
from ottla.model.seams import Clock
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.groups import GroupConfig
from ottla.node.network.connection import Pending
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher, Peer
from ottla.node.network.memory.request_memory import RequestMemory
from ottla.node.network.response_queue import ResponseSlot
from ottla.node.network.server.hosting import ConnectionHosting, HostedChannel
from ottla.node.network.steps import ThreadWork, is_steps, run_through
from ottla.proto import controller_pb2 as pb
from ottla.storage.disk.slice import FileSlice
from ottla.telemetry.clients.client_labels import ClientLabels
from ottla.telemetry.clients.instances import ClientInstance, ClientInstances
from ottla.telemetry.clients.push_work import WaitingPush, Worker
from ottla.wire.apis import API, request_class
from ottla.wire.codec import decode, encode
from ottla.wire.codec_types import Message
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)

NOW_MS = 50_000
WALL_MS = 1_700_000_000_000
LOCAL = NodeId(1)
TOPIC = "t"
PARTITION_COUNT = 2
PUSH_INTERVAL_MS = 1_000
CONFIG = BrokerConfig(node_id=LOCAL, groups=GroupConfig(initial_rebalance_delay_ms=0))
FRAME_BYTES_MAX = 64 * KIB
PEER = Peer(
    connection_id=1,
    listener_name="PLAINTEXT",
    peer_host="127.0.0.1",
    peer_port=40_000,
    local_host="127.0.0.1",
    local_port=9092,
)


class FrozenClock:
    """Clock that does not advance, so that an input always has the same effect."""

    def monotonic_ms(self) -> int:
        """Return the fixed time in ms."""
        return NOW_MS

    def wall_ms(self) -> int:
        """Return the fixed time in ms."""
        return WALL_MS


@cache
def cluster() -> InMemoryController:
    """Return a controller with the metadata of a cluster that has one broker and several topics."""
    made = InMemoryController()
    made.start(LOCAL)
    for name in (TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        assignments = [
            CreatableReplicaAssignment(partition_index=at, broker_ids=[LOCAL])
            for at in range(PARTITION_COUNT)
        ]
        topic = CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=assignments
        )
        made.forward(CreateTopicsRequest(topics=[topic]))
    return made


class ImmediateController:
    """Controller of the broker under test. It has no other clients and decides every request
    immediately."""

    async def forward(self, request: pb.ForwardRequest, *, deadline_ms: int) -> pb.ForwardResponse:
        """Return the controller's response to a forwarded request. The metadata is not changed."""
        before = cluster()
        version = request.api_version
        api = API.get(request.api_key)
        if api is None or not api.lowest <= version <= api.highest:
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION)
        message = decode(request_class(request.api_key), version, request.body)
        again = copy(before)
        again.rng = CountingRng(drawn=before.rng.drawn)
        answer = again.forward(message, version)
        return pb.ForwardResponse(body=encode(answer, version), metadata_offset=0)


class MemoryChannel(HostedChannel):
    """In-memory channel of the broker's client connection. It supplies the bytes that the client
    sends, and collects the bytes that the broker sends back."""

    __slots__ = ("left", "piece_bytes", "sent")

    def __init__(self, hosting: "MiniBroker") -> None:
        super().__init__(hosting)
        self.left = memoryview(b"")
        self.piece_bytes = 1
        """Number of client bytes that one read delivers to the broker."""
        self.sent = bytearray()
        """Bytes that the broker has sent to the client."""

    @property
    def has_more_to_write(self) -> bool:
        """Always False, because the client receives everything immediately."""
        return False

    def read(self, now_ms: int) -> bool:
        """Pass the next piece of the client's bytes to the broker's connection. Always returns
        True, because the end of the stream is not simulated."""
        piece, self.left = self.left[: self.piece_bytes], self.left[self.piece_bytes :]
        self.connection.on_bytes(piece, now_ms)
        return True

    def flush(self, now_ms: int) -> None:
        """Deliver all pending output of the broker to the client."""
        output = self.connection.output
        for chunk in output.chunks:
            assert isinstance(chunk, FileSlice | bytes | bytearray | memoryview)
            if isinstance(chunk, FileSlice):
                brought_in(chunk, None)
                chunk = chunk.read()
            self.sent += chunk
        self.connection.on_sent(output.byte_count, now_ms)

    def close_socket(self) -> None:
        """Discard the client's bytes that have not arrived yet."""
        self.left = memoryview(b"")


class MiniBroker(ConnectionHosting[MemoryChannel]):
    """A broker core and its only client connection, without sockets and tasks."""

    def __init__(
        self,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        image: MetadataImage | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Start the broker with a metadata image, which is the image of `cluster()` by default.
        Without `clock`, the broker's clock does not advance."""
        self.faults: list[BaseException] = []
        """Unexpected exceptions in the broker. Input from a client must never cause one."""
        self._orders: list[MarkerOrder] = []
        """Transaction markers that the coordinator has requested. Each partition receives its
        marker immediately."""
        self._are_groups_due = False
        clock, rng = clock or FrozenClock(), SeededRng(1)
        dispatcher = Dispatcher(errors=NotedErrors(self.faults.append))
        super().__init__(
            dispatcher,
            clock=clock,
            limits=ConnectionLimits(frame_bytes_max=frame_bytes_max),
            memory=RequestMemory(None),
        )
        self.core = BrokerCore(CONFIG, clock=clock, rng=rng, dispatcher=dispatcher)
        self.purgatory, self.table = self.core.purgatory, self.core.table
        ports = ports_on(SimulatedDisk(rng), clock.wall_ms)
        self.core.open_replicas(ports)
        image = cluster().image if image is None else image
        delta = MetadataDelta.between(EMPTY, image)
        run_now(self.core.metadata.publish(delta, image))
        run_now(self.core.replicas.publish(delta, image))
        self.core.open_coordinators(
            CoordinatorPorts(
                producer_ids=SequentialIds(),
                send_markers=lambda order: self._orders.append(order),
                cancel_markers=lambda state_partition: None,
            )
        )
        self.core.groups.on_due = self._note_groups_due
        self.core.groups.on_earlier_deadline = self._note_groups_due
        self.publish(image)
        self.core.register_early(
            cluster_id="fuzz",
            describe_node=DescribeNodeApi(
                node_id=LOCAL,
                state=lambda: "RUNNING",
                recovery=lambda: (),
                problems=lambda: (),
                metric_sources=(),
            ),
            coming=frozenset(),
            offers_telemetry=lambda: True,
        )
        self.core.register(
            cluster_id="fuzz",
            controller=ImmediateController(),
        )
        clients = ClientInstances(fresh_id=rng.uuid, payload_bytes_max=FRAME_BYTES_MAX)
        clients.on_subscriptions({"all": {"metrics": "*", "interval.ms": str(PUSH_INTERVAL_MS)}})
        TelemetryApis(
            clients,
            payload_bytes_max=FRAME_BYTES_MAX,
            take=_take_at_once,
            is_offered=lambda: True,
        ).register(dispatcher)
        self.dispatcher = dispatcher
        self.reconnect()

    # --- hosting of the connection ---

    def run_pending(self, channel: MemoryChannel, slot: ResponseSlot, pending: Pending) -> None:
        """Finish the work that a request handler started. A response that would be delayed is
        dropped together with its request."""
        work = self._await_pending(channel, slot, pending)
        with suppress(StopIteration):
            work.send(None)
            work.close()

    async def _result_of(self, slot: ResponseSlot, pending: Any) -> Message | None:
        while not (pending is None or isinstance(pending, Message)):
            if isinstance(pending, ThreadWork):
                pending = pending.then(pending.work())
            elif is_steps(pending):
                pending = run_through(pending)
            else:
                pending = await pending
        return pending

    def _have_turn(self) -> None:
        """Ignore the request for an event-loop iteration. The caller repeats iterations as long as
        there is work."""

    def _rearm(self) -> None:
        """Ignore the request for a timer, because the clock does not advance."""

    def _watch(self, channel: MemoryChannel) -> None:
        """Ignore the request for I/O events of the channel, because all of the client's bytes are
        already in memory."""

    def _on_closed(self, channel: MemoryChannel) -> None:
        """Do nothing when the channel closes, since there is no other client."""

    def _log(self, lines: LogLimiter, now_ms: int, line: str) -> None:
        """Discard a log line about a connection. A fuzzed client sends invalid input on purpose."""

    # --- used by targets ---

    def reconnect(self) -> None:
        """Replace the client's connection by a new one. The state of the broker does not change."""
        self._channel = MemoryChannel(self)
        self.host(self._channel, replace(PEER), NOW_MS)

    def take(self, data: bytes | bytearray, piece_bytes: int) -> bytes:
        """Deliver the client's bytes in pieces of `piece_bytes`, and return the bytes that the
        broker sends back."""
        channel = self._channel
        channel.sent = sent = bytearray()
        channel.left, channel.piece_bytes = memoryview(data), piece_bytes
        self._serve_unfinished()
        while channel.left and not channel.connection.is_closed:
            left_bytes = len(channel.left)
            self._end_waits()
            if len(channel.left) == left_bytes:
                break
        self._end_waits()
        return bytes(sent)

    def publish(self, image: MetadataImage) -> None:
        """Pass a new metadata image to the broker's coordinators."""
        for coordinator in self.core.coordinators:
            run_now(coordinator.publish(MetadataDelta.between(coordinator.image, image), image))

    def exchange(self, data: bytes) -> int:
        """Deliver complete request frames of the client, and return the size of the responses in
        bytes. The responses are not read.

        The connection is called directly, so that benchmarks do not count the instructions of a
        server.
        """
        connection, size = self._channel.connection, 0
        connection.on_bytes(memoryview(data), NOW_MS)
        while True:
            if count := connection.output.byte_count:
                connection.on_sent(count, NOW_MS)
                size += count
            if not (self._ready or connection.has_more_to_take_up):
                return size
            self._ready.clear()
            connection.resume(NOW_MS)

    def exchange_in_turn(self, data: bytes) -> int:
        """Deliver complete request frames within one event-loop iteration. Returns the size of the
        responses at its end.

        Coordinators need this because they write and respond at the end of an iteration.
        """
        turn_end, connection = self.dispatcher.turn_end, self._channel.connection
        turn_end.begin()
        size = self.exchange(data)
        turn_end.end(self._errors)
        self._ready.clear()
        if count := connection.output.byte_count:
            connection.on_sent(count, NOW_MS)
        return size + count

    def exchange_in_turns(self, data: bytes) -> Iterator[None]:
        """Deliver complete request frames, and run event-loop iterations until all requests are
        answered. Yields after each iteration.

        Coordinators need this because they write and respond at the end of an iteration.
        """
        turn_end, connection = self.dispatcher.turn_end, self._channel.connection
        now_ms = self._clock.monotonic_ms()
        turn_end.begin()
        connection.on_bytes(memoryview(data), now_ms)
        while True:
            turn_end.end(self._errors)
            if count := connection.output.byte_count:
                connection.on_sent(count, now_ms)
            yield
            if not (self._ready or connection.has_more_to_take_up):
                return
            self._ready.clear()
            turn_end.begin()
            connection.resume(now_ms)

    def _end_waits(self) -> None:
        """End the wait of all delayed requests, so that their responses are sent now."""
        self.purgatory.expire(NOW_MS + 3_600_000)
        self._serve_unfinished()

    def _serve_unfinished(self) -> None:
        """Run event-loop iterations of the broker until no work is pending."""
        turn_end = self.dispatcher.turn_end
        has_work = True
        while has_work:
            turn_end.begin()
            self._go_on_with_transactions()
            self._go_on_with_groups()
            self._go_on_with_channel()
            has_work = bool(turn_end.works)
            turn_end.end(self._errors)
            has_work |= bool(self._orders) or self._are_groups_due

    def _note_groups_due(self) -> None:
        self._are_groups_due = True

    def _go_on_with_transactions(self) -> None:
        orders, self._orders = self._orders, []
        for order in orders:
            self.core.transactions.on_marked(order, frozenset(order.missing))

    def _go_on_with_groups(self) -> None:
        if not self._are_groups_due:
            return
        self._are_groups_due = False
        groups = self.core.groups
        deadline_ms = groups.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= NOW_MS:
            groups.on_time(NOW_MS)
        for _ in groups.work():
            pass

    def _go_on_with_channel(self) -> None:
        channel = self._channel
        while True:
            if self._ready:
                self._ready.clear()
                self._serve(self._resume, channel, 0, NOW_MS)
            elif channel.left and channel.connection.wants_bytes:
                self._serve(self._on_piece, channel, 0, NOW_MS)
            else:
                return

    def _on_piece(self, channel: MemoryChannel, _: int, now_ms: int) -> None:
        channel.read(now_ms)
        self._flush(channel, 0, now_ms)


def _take_at_once(instance: ClientInstance, codec: int, payload: bytes, done: Done) -> None:
    """Process a client's telemetry push in the caller, not in a worker thread."""
    traits = instance.traits
    labels = ClientLabels(
        instance.id,
        traits.client_id or "",
        "User:ANONYMOUS",
        traits.software_name,
        traits.software_version,
        traits.source_address,
        LOCAL,
    )
    pending = WaitingPush(1, labels, codec, payload, WALL_MS, done, wants_shape=True)
    (taken,) = Worker(wants_points=True).take_in([pending])
    done(taken.error)


def id_of(name: str) -> UUID:
    """Return the id of a topic in the metadata of `cluster()`."""
    topic = cluster().image.topic(name)
    assert topic is not None
    return topic.id
