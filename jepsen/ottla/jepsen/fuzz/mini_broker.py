"""A broker's core without drivers: real handlers, partitions, logs, groups behind one connection.

Its logs lie on the world's disk, its controller decides at once, its clock stands.  One is made for
every input, so that an input means the same whenever it is read.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any
from uuid import UUID

from ottla.broker.broker_core import BrokerCore, ReplicaPorts
from ottla.broker.cluster.describe_node import DescribeNodeApi
from ottla.broker.groups.effects import Asker, Instant
from ottla.broker.groups.group_settings import SettingsOfGroups
from ottla.broker.groups.offset_store import OwnBatch
from ottla.broker.groups.shard import GroupShard
from ottla.broker.groups.topic_view import TopicView
from ottla.broker.logs.write_txn_markers import TransactionEnd
from ottla.broker.metrics.telemetry_apis import Done, TelemetryApis
from ottla.broker.network.connection import Pending
from ottla.broker.network.connection_limits import ConnectionLimits
from ottla.broker.network.dispatch import Dispatcher, Peer
from ottla.broker.network.hosting import ConnectionHosting, HostedChannel
from ottla.broker.network.request_memory import RequestMemory
from ottla.broker.network.response_queue import ResponseSlot
from ottla.broker.network.steps import Apart, is_steps, run_through
from ottla.broker.replicas.partition import Partition
from ottla.broker.transactions.transaction_driver import TRANSACTIONAL_ID_CHARS_MAX
from ottla.broker.transactions.transaction_shard import TransactionShard
from ottla.controller.rehearsal import CountingRng, Rehearsal
from ottla.jepsen.world.disk import SimulatedDisk, brought_in
from ottla.jepsen.world.noted_errors import NotedErrors
from ottla.jepsen.world.rng import SeededRng
from ottla.jepsen.world.walk.now import AtOnceWork
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset, ProducerId, TopicIdPartition, TopicPartition
from ottla.model.internal_topics import OFFSETS_TOPIC
from ottla.model.limits import KIB
from ottla.model.log_limiter import LogLimiter
from ottla.model.run_now import run_now
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.groups import GroupConfig
from ottla.proto import controller_pb2 as pb
from ottla.storage.log import Log, open_log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_losses import LogLoss
from ottla.storage.slice import FileSlice
from ottla.storage.verification import VerificationGuard
from ottla.telemetry.client_labels import ClientLabels
from ottla.telemetry.instances import ClientInstance, ClientInstances
from ottla.telemetry.push_work import Pending as PendingPush
from ottla.telemetry.push_work import Worker
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


class StandingClock:
    """Time that stands."""

    def monotonic_ms(self) -> int:
        """Return the one instant there is."""
        return NOW_MS

    def wall_ms(self) -> int:
        """Return the one instant there is."""
        return WALL_MS


@cache
def cluster() -> Rehearsal:
    """Return the metadata of one broker's cluster, with the topics that are there."""
    made = Rehearsal()
    made.start(LOCAL)
    for name in (TOPIC, "__consumer_offsets"):
        assignments = [
            CreatableReplicaAssignment(partition_index=at, broker_ids=[LOCAL])
            for at in range(PARTITION_COUNT)
        ]
        topic = CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=assignments
        )
        made.forward(CreateTopicsRequest(topics=[topic]))
    return made


class OneShard:
    """The coordinator of all groups: one shard, whose records are committed at once."""

    is_loading = False

    def __init__(self) -> None:
        topics = TopicView()
        topics.follow(MetadataDelta(EMPTY), EMPTY)
        image = cluster().image
        topics.follow(MetadataDelta.between(EMPTY, image), image)
        rng, settings = CountingRng(), SettingsOfGroups(CONFIG.groups)
        self._shard = GroupShard(
            CONFIG.groups,
            topics=topics,
            settings=lambda group_id: settings.of(image, group_id),
            new_id=lambda: str(rng.uuid()),
        )

    def perform(
        self,
        group_id: str,
        asker: Asker,
        action: Callable[[GroupShard, Instant], None],
        *,
        is_write: bool = False,
    ) -> None:
        """Do it, and give the answers it brought."""
        action(self._shard, Instant(NOW_MS, WALL_MS))
        while effects := self._shard.take_effects():
            answers = effects.answers + effects.committed_answers
            if not answers and not effects.records:
                break
            for each, answer in answers:
                each(answer)

    def begin_transaction(
        self, group_id: str, *, producer_id: int, epoch: int, is_bumping: bool
    ) -> tuple[TopicPartition, VerificationGuard | None]:
        """Let any transaction be open."""
        return TopicPartition(OFFSETS_TOPIC, 0), None

    def commit_in_transaction(
        self,
        group_id: str,
        asker: Asker,
        decide: Callable[[GroupShard, Instant], OwnBatch],
        guard: VerificationGuard | None,
    ) -> None:
        """Decide it, and answer."""
        try:
            own = decide(self._shard, Instant(NOW_MS, WALL_MS))
        except RefusedError as refusal:
            asker(refusal.code)
            return
        own.on_written()
        asker(own.answer)

    def end_transaction(
        self, index: int, end: TransactionEnd, asker: Callable[[ErrorCode], None]
    ) -> None:
        """End it at once."""
        self._shard.store.end_transaction(end.producer_id, is_commit=end.is_commit)
        asker(ErrorCode.NONE)

    def shard_of(self, group_id: str) -> GroupShard:
        """Return the one there is."""
        return self._shard

    def shards(self) -> Iterator[GroupShard]:
        """Yield the one there is."""
        yield self._shard


class EndlessIds:
    """Producer ids, as many as are asked for."""

    has_some = True

    def __init__(self) -> None:
        self._given_count = 0

    def take(self) -> ProducerId:
        """Return the next one."""
        self._given_count += 1
        return ProducerId(self._given_count)

    async def wait(self, timeout_s: float) -> None:
        """Return: there are some."""


class OneTransactionShard:
    """The coordinator of all transactions: one shard, whose steps are committed at once."""

    is_loading = False

    def __init__(self) -> None:
        self._shard = TransactionShard(
            CONFIG.transactions,
            index=0,
            coordinator_epoch=Epoch(0),
            take_id=EndlessIds().take,
            server_version=lambda: 2,
        )

    def perform(
        self,
        key: str,
        asker: Asker,
        action: Callable[[TransactionShard, Instant], None],
        *,
        is_write: bool = False,
    ) -> None:
        """Do it, and what follows from it; every partition has its marker at once."""
        now = Instant(NOW_MS, WALL_MS)
        if not key or len(key) > TRANSACTIONAL_ID_CHARS_MAX:
            asker(ErrorCode.INVALID_REQUEST)
            return
        action(self._shard, now)
        while True:
            effects = self._shard.take_effects()
            if not (effects.writes or effects.answers or effects.orders):
                break
            for write in effects.writes:
                write.on_committed(now)
                if write.asker is not None:
                    write.asker(write.answer)
            for order in effects.orders:
                self._shard.on_marked(order, frozenset(order.missing), now)
            for each, answer in effects.answers:
                each(answer)

    def when_completed(self, transactional_id: str, proceed: Callable[[], None]) -> bool:
        """Return that nothing is being ended: every partition has its marker at once."""
        return False

    def shard_of(self, key: str) -> TransactionShard:
        """Return the one there is."""
        return self._shard

    def shards(self) -> Iterator[TransactionShard]:
        """Yield the one there is."""
        yield self._shard


class AtOnce:
    """The active controller, who decides on a cluster that nobody else changes."""

    async def forward(self, request: pb.ForwardRequest, *, deadline_ms: int) -> pb.ForwardResponse:
        """Decide a forwarded request; nothing of it stays."""
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


class OneDisk:
    """The logs of the broker, on one disk in memory."""

    offline: Mapping[TopicPartition, str] = MappingProxyType({})
    losses: Mapping[TopicIdPartition, LogLoss] = MappingProxyType({})

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self._logs: dict[TopicPartition, Log] = {}

    def __iter__(self) -> Iterator[tuple[TopicPartition, Log]]:
        """Yield every log."""
        return iter(self._logs.items())

    async def forget_losses(self, whole: Collection[TopicIdPartition]) -> None:
        """Do nothing: no log is ever lost here."""

    def get(self, partition: TopicPartition) -> Log | None:
        """Return a partition's log, if it was created."""
        return self._logs.get(partition)

    async def create(
        self,
        partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        *,
        directory_id: UUID | None = None,
        holds_nothing: bool = True,
    ) -> Log:
        """Return the partition's log, created if need be, with a small index."""
        log = self._logs.get(partition)
        if log is None:
            log = self._logs[partition] = await open_log(
                self._disk,
                f"/data/{partition.topic}-{partition.partition}",
                config=replace(config, segment_index_bytes=4 * KIB),
                topic_id=topic_id,
                is_clean=True,
                recovery_point=Offset(0),
                log_start_offset=Offset(0),
                now_ms=WALL_MS,
            )
        return log

    async def delete(self, partition: TopicPartition) -> None:
        """Remove a partition's log."""
        self._logs.pop(partition, None)

    def directory_of(self, partition: TopicPartition) -> None:
        """Return None: there is one disk."""

    def apply_retention_soon(self) -> None:
        """Do nothing: all is kept."""


class NoFetchers:
    """Followers of a broker that leads everything."""

    def follow(self, partition: Partition) -> None:
        """Do nothing."""

    def leave(self, partitions: Iterable[TopicIdPartition]) -> dict[TopicIdPartition, Any]:
        """Return nothing to wait for."""
        return {}


class MemoryChannel(HostedChannel):
    """The client's bytes, which are all there, and what it was sent."""

    __slots__ = ("left", "piece_bytes", "sent")

    def __init__(self, hosting: "MiniBroker") -> None:
        super().__init__(hosting)
        self.left = memoryview(b"")
        self.piece_bytes = 1
        """Bytes that arrive at once."""
        self.sent = bytearray()
        """What the client has read."""

    @property
    def has_more_to_write(self) -> bool:
        """Return False: the client takes all at once."""
        return False

    def read(self, now_ms: int) -> bool:
        """Hand on one piece."""
        piece, self.left = self.left[: self.piece_bytes], self.left[self.piece_bytes :]
        self.connection.on_bytes(piece, now_ms)
        return True

    def flush(self, now_ms: int) -> None:
        """Let the client read all."""
        output = self.connection.output
        for chunk in output.chunks:
            assert isinstance(chunk, FileSlice | bytes | bytearray | memoryview)
            if isinstance(chunk, FileSlice):
                brought_in(chunk, None)
                chunk = chunk.read()
            self.sent += chunk
        self.connection.on_sent(output.byte_count, now_ms)

    def hang_up(self) -> None:
        """Drop what has not arrived."""
        self.left = memoryview(b"")


class MiniBroker(ConnectionHosting[MemoryChannel]):
    """All of it, and the host of the one connection."""

    def __init__(self, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.faults: list[BaseException] = []
        """Unexpected errors: no client may bring one about."""
        clock, rng = StandingClock(), SeededRng(1)
        dispatcher = Dispatcher(errors=NotedErrors(self.faults.append))
        super().__init__(
            dispatcher,
            clock=clock,
            limits=ConnectionLimits(frame_bytes_max=frame_bytes_max),
            memory=RequestMemory(None),
        )
        self.core = BrokerCore(CONFIG, clock=clock, rng=rng, dispatcher=dispatcher)
        self.purgatory, self.table = self.core.purgatory, self.core.table
        ports = ReplicaPorts(
            logs=OneDisk(SimulatedDisk(rng)),
            fetchers=NoFetchers(),
            work=AtOnceWork(),
            on_flush_due=lambda partition: None,
            on_isr_due=lambda partition: None,
            on_placed=lambda key, directory: None,
            on_led=lambda partition: None,
            bring_in=brought_in,
        )
        self.core.open_replicas(ports)
        image = cluster().image
        delta = MetadataDelta.between(EMPTY, image)
        run_now(self.core.metadata.publish(delta, image))
        run_now(self.core.replicas.publish(delta, image))
        self.core.register_early(
            cluster_id="fuzz",
            describe_node=DescribeNodeApi(
                node_id=LOCAL,
                state=lambda: "RUNNING",
                recovery=lambda: (),
                problems=lambda: (),
                metric_sources=(),
            ),
            coming=(),
            offers_telemetry=lambda: True,
        )
        self.core.register(
            cluster_id="fuzz",
            controller=AtOnce(),
            coordinator=OneShard(),
            transactions=OneTransactionShard(),
            producer_ids=EndlessIds(),
            followed=lambda: image,
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
        self._channel = MemoryChannel(self)
        self.host(self._channel, replace(PEER), NOW_MS)

    # --- how it hosts the connection ---

    def run_pending(self, channel: MemoryChannel, slot: ResponseSlot, pending: Pending) -> None:
        """Finish what a handler left; what waits is given up, with its request."""
        work = self._await_pending(channel, slot, pending)
        with suppress(StopIteration):
            work.send(None)
            work.close()

    async def _result_of(self, slot: ResponseSlot, pending: Any) -> Message | None:
        while not (pending is None or isinstance(pending, Message)):
            if isinstance(pending, Apart):
                pending = pending.then(pending.work())
            elif is_steps(pending):
                pending = run_through(pending)
            else:
                pending = await pending
        return pending

    def _have_turn(self) -> None:
        """Do nothing: turns go on for as long as there is work."""

    def _rearm(self) -> None:
        """Do nothing: time stands."""

    def _watch(self, channel: MemoryChannel) -> None:
        """Do nothing: there is no other client."""

    def _on_closed(self, channel: MemoryChannel) -> None:
        """Do nothing: there is no other client."""

    def _log(self, lines: LogLimiter, now_ms: int, line: str) -> None:
        """Do nothing: bad input is what a fuzzer is for."""

    # --- what is done with it ---

    def take(self, data: bytes | bytearray, piece_bytes: int) -> bytes:
        """Bring bytes as they may arrive, in pieces, and return what is sent back."""
        channel = self._channel
        channel.sent = sent = bytearray()
        channel.left, channel.piece_bytes = memoryview(data), piece_bytes
        self._go_on()
        while channel.left and not channel.connection.is_closed:
            left_bytes = len(channel.left)
            self._end_waits()
            if len(channel.left) == left_bytes:
                break
        self._end_waits()
        return bytes(sent)

    def exchange(self, data: bytes) -> int:
        """Bring one frame whole; return the size of the answer, which is not read.

        The connection is driven without its host, whose instructions no path of a bench counts.
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

    def _end_waits(self) -> None:
        """Let what waits for more, or for others, wait no longer."""
        self.purgatory.expire(NOW_MS + 3_600_000)
        self._go_on()

    def _go_on(self) -> None:
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
    """Take in what was pushed, here and now."""
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
    pending = PendingPush(1, labels, codec, payload, WALL_MS, done, wants_shape=True)
    (taken,) = Worker(wants_points=True).take_in([pending])
    done(taken.error)


def id_of(name: str) -> UUID:
    """Return the id of a topic that is there."""
    topic = cluster().image.topic(name)
    assert topic is not None
    return topic.id
