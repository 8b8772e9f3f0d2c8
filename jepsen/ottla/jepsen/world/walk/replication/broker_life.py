"""One broker in a random walk: its machine with the logs, and its successive processes.

A process is a `BrokerCore` as in a real broker, with a manager of in-sync replicas and a
`FollowerFetch` for each leader that it follows. Only the driver is part of the test: requests and
responses become messages that the random walk delivers or loses.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any
from uuid import UUID

from ottla.broker.broker_core import BrokerCore, ReplicaPorts
from ottla.broker.replicas.follower_duties import DiskDuty, perform_duty
from ottla.broker.replicas.follower_fetch import (
    Duty,
    FindLogRange,
    FindTierStart,
    Flush,
    FollowedPartition,
    FollowerFetch,
    place_of,
)
from ottla.broker.replicas.isr_keeper import Changes, IsrKeeper
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.replica_seams import ReplicaDirectory
from ottla.jepsen.world.disk import brought_in
from ottla.jepsen.world.noted_errors import NotedErrors
from ottla.jepsen.world.walk.now import ImmediateLogWork
from ottla.jepsen.world.walk.replication.disk_store import DiskStore
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.model.errors import RefusedError
from ottla.model.ids import NO_NODE, NodeId, Offset, TopicIdPartition, TopicPartition
from ottla.model.run_now import run_now
from ottla.model.seams import Clock, Rng
from ottla.model.settings.broker import BrokerConfig
from ottla.node.network.dispatch import Dispatcher, Peer, RequestContext
from ottla.node.network.loopback_driver import NullSlotOwner
from ottla.node.network.steps import finished
from ottla.proto import controller_pb2 as pb
from ottla.storage.losses.log_losses import LogLoss
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.codec_types import Message
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.delete_records_request import DeleteRecordsRequest
from ottla.wire.messages.fetch_request import FetchRequest
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.produce_request import ProduceRequest

LAG_MS = 10_000

SESSION_SLOTS = 2
"""Maximum number of fetch sessions of a simulated broker. It is smaller than the number of fetchers
and consumers, so that sessions are also evicted."""

FETCH_BYTES = 140
"""Maximum size of a fetch response in bytes: two batches of one small record, so that logs are
copied in parts."""

PEER = Peer(
    connection_id=0,
    listener_name="PLAINTEXT",
    peer_host="peer",
    peer_port=0,
    local_host="here",
    local_port=0,
)
FETCH_HEADER = RequestHeader(FetchRequest.API_KEY, FetchRequest.VERSIONS[-1], None, 0)
DELETE_HEADER = RequestHeader(
    DeleteRecordsRequest.API_KEY, DeleteRecordsRequest.VERSIONS[-1], None, 0
)
PRODUCE_HEADER = RequestHeader(ProduceRequest.API_KEY, ProduceRequest.VERSIONS[-1], None, 0)

NO_PARTITIONS: Mapping[int, Partition] = {}

OnAnswer = Callable[[Any], None]


class WalkedContext(RequestContext):
    """Context of one request. In a real broker, the context belongs to a connection."""

    __slots__ = ("_on_answer",)

    def __init__(self, on_answer: OnAnswer, header: RequestHeader, now_ms: int) -> None:
        super().__init__(NullSlotOwner(), header, 0, 0, PEER, now_ms)
        self._on_answer = on_answer

    def complete(self, response: Message) -> None:
        """Deliver the response to the sender of the request."""
        self.on_abandoned = None
        self._on_answer(response)


class WalkedFetcher:
    """A follower process's fetcher from one leader, with at most one request in flight."""

    __slots__ = ("asked", "core", "flushing", "places")

    def __init__(self, core: FollowerFetch) -> None:
        self.core = core
        self.asked: object | None = None
        """Fetch request of this fetcher that is in flight, or None if no request is in flight."""
        self.places: list[FollowedPartition] = []
        """Partitions whose fetch position the fetcher must determine before it fetches them."""
        self.flushing: list[FollowedPartition] = []

    @property
    def is_idle(self) -> bool:
        """True if the fetcher may send its next request: no request is in flight and no work from
        the last response is pending."""
        self.flushing += self.core.take_unflushed()
        return self.asked is None and not self.places and not self.flushing


class BrokerLife:
    """One process of a simulated broker, from its registration to its end."""

    def __init__(
        self,
        machine: "BrokerMachine",
        *,
        epoch: int,
        image: MetadataImage,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self.machine = machine
        self.epoch = epoch
        self.seen = 0
        """Index of the newest metadata image of the controller that this process has applied."""
        self.is_leaving = False
        self.altering: object | None = None
        """AlterPartition request of this broker that is in flight to the controller, or None if no
        request is in flight."""
        self.flush_due: dict[Partition, None] = {}
        self.fetchers: dict[NodeId, WalkedFetcher] = {}
        self._fetcher_of: dict[TopicIdPartition, WalkedFetcher] = {}
        self._clock = clock
        self._errors = NotedErrors(_raise)
        self.core = BrokerCore(
            machine.config, clock=clock, rng=rng, dispatcher=Dispatcher(errors=self._errors)
        )
        self.purgatory = self.core.purgatory
        self.table = self.core.table
        self.keeper = IsrKeeper(self.table, machine.config, lambda: epoch)
        ports = ReplicaPorts(
            logs=machine,
            fetchers=self,
            work=ImmediateLogWork(),
            on_flush_due=self.request_flush,
            on_isr_due=self.keeper.note,
            on_placed=lambda key, directory: None,
            bring_in=brought_in,
        )
        self.core.open_replicas(ports)
        self.replicas = self.core.replicas
        for index in machine.store.indexes():
            at = TopicPartition(machine.topic, index)
            if self.replicas.is_stray(image, at, machine.topic_id):
                machine.store.delete(index)
        self.publish(MetadataDelta.between(EMPTY, image), image)

    @property
    def partitions(self) -> Mapping[int, Partition]:
        """Partitions of the test topic on this broker, by index."""
        return self.table.by_id.get(self.machine.topic_id, NO_PARTITIONS)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply a metadata delta to the broker core, so that it has the metadata image `image`."""
        run_now(self.replicas.publish(delta, image))

    # --- ports of its cores -------------------------------------------------------------------

    def request_flush(self, partition: Partition) -> None:
        """Request a flush of a partition's log, which the random walk performs later."""
        self.flush_due[partition] = None

    def follow(self, partition: Partition) -> None:
        """Start following a partition's leader, as ReplicaFetchers does."""
        key, leader_id = partition.key, partition.leader_id
        if key in self._fetcher_of or leader_id in (NO_NODE, self.machine.id):
            return
        fetcher = self.fetchers.get(leader_id)
        if fetcher is None:
            quota = self.core.replication_quotas.follower
            fetcher = WalkedFetcher(FollowerFetch(leader_id, self.machine.config, quota))
            self.fetchers[leader_id] = fetcher
        self._fetcher_of[key] = fetcher
        fetcher.core.follow(partition)

    def leave(
        self, partitions: Iterable[TopicIdPartition]
    ) -> dict[TopicIdPartition, Callable[[], Awaitable[None]]]:
        """Stop following the leaders of partitions. Returns an empty mapping. A real fetcher
        returns a function for each partition that waits for the end of disk work in progress;
        simulated fetchers have no such work."""
        for key in partitions:
            fetcher = self._fetcher_of.pop(key, None)
            if fetcher is not None:
                fetcher.core.leave(key)
                if not len(fetcher.core):
                    del self.fetchers[fetcher.core.leader_id]
        return {}

    # --- requests -----------------------------------------------------------------------------

    def fetch(self, request: FetchRequest, now_ms: int, on_answer: OnAnswer) -> None:
        """Serve a fetch request. `on_answer` receives the response at once, or when enough data is
        available."""
        context = WalkedContext(on_answer, FETCH_HEADER, now_ms)
        response = self.core.data.fetch.handle(context, request)
        if response is not None:
            on_answer(response)

    def produce(self, request: ProduceRequest, now_ms: int, on_answer: OnAnswer) -> None:
        """Serve a produce request. `on_answer` receives the response at once, or when the records
        are committed."""
        context = WalkedContext(on_answer, PRODUCE_HEADER, now_ms)
        response = self.core.data.produce.handle(context, request)
        if response is not None:
            on_answer(response)

    def delete_records(
        self, request: DeleteRecordsRequest, now_ms: int, on_answer: OnAnswer
    ) -> None:
        """Serve a DeleteRecords request. `on_answer` receives the response at once, or when all
        replicas have deleted the records."""
        context = WalkedContext(on_answer, DELETE_HEADER, now_ms)
        run_now(finished(self.core.data.delete_records.handle(context, request)))

    # --- following ----------------------------------------------------------------------------

    def take_fetched(
        self, fetcher: WalkedFetcher, response: FetchResponse, now_ms: int
    ) -> list[Duty]:
        """Handle a leader's response to this follower's fetch. Returns the disk work that results
        from it, such as truncations."""
        core = fetcher.core
        fetcher.asked = None
        try:
            core.session.take(response)
        except RefusedError:
            return []
        duties: list[Duty] = []
        for topic in response.responses:
            for data in topic.partitions:
                followed = core.find(TopicIdPartition(topic.topic_id, data.partition_index))
                if followed is None:
                    continue
                duty = core.take(followed, data, now_ms=now_ms, wall_ms=now_ms)
                if duty is None:
                    continue
                duties.append(duty)
                if isinstance(duty, Flush):
                    fetcher.flushing.append(followed)
                elif isinstance(duty, FindLogRange):
                    fetcher.places.append(followed)
                elif isinstance(duty, FindTierStart):
                    raise AssertionError("no topic of a walk is in an object store")
                else:
                    self._carry_out(fetcher, followed, duty)
        return duties

    def _carry_out(
        self, fetcher: WalkedFetcher, followed: FollowedPartition, duty: DiskDuty
    ) -> None:
        run_now(
            perform_duty(
                fetcher.core, followed, followed.log, duty, clock=self._clock, errors=self._errors
            )
        )

    def find_place(
        self, fetcher: WalkedFetcher, followed: FollowedPartition, place: tuple[Offset, Offset]
    ) -> None:
        """Truncate a follower's log to the part that the leader has, or start it at the leader's
        log start. `place` has the leader's log start offset and log end offset."""
        fetcher.places.remove(followed)
        if fetcher.core.find(followed.key) is not followed:
            return
        self._carry_out(fetcher, followed, place_of(followed, *place))

    # --- flushing -----------------------------------------------------------------------------

    def flush_replica(self, fetcher: WalkedFetcher) -> None:
        """Flush the records that a follower has appended, or that it wrote earlier as a leader."""
        for followed in fetcher.flushing:
            if fetcher.core.find(followed.key) is followed:
                self._carry_out(fetcher, followed, Flush())
        fetcher.flushing.clear()

    def flush_led(self, partition: Partition, left_count: int, now_ms: int) -> None:
        """End a flush of a led partition's log. The flush began before the last `left_count`
        records were appended, as with the broker's Flusher."""
        log = partition.log
        if log is None:
            self.flush_due.pop(partition, None)
            return
        run_now(log.flush(Offset(log.end_offset - left_count)))
        if log.recovery_point >= log.end_offset:
            self.flush_due.pop(partition, None)
        partition.on_flushed(log, now_ms)

    def changes(self) -> Changes:
        """Return the ISR changes that this broker should request from the controller."""
        return self.keeper.changes(self._clock.monotonic_ms())

    def take_altered(self, changes: Changes, answer: pb.AlterPartitionResponse) -> None:
        """Apply the controller's response to the ISR changes that this broker requested."""
        self.keeper.on_answer(changes, answer, self._clock.monotonic_ms())


class BrokerMachine:
    """A simulated broker's machine, whose logs outlive its processes. It also serves as the
    process's log manager."""

    def __init__(self, node_id: NodeId, store: DiskStore, *, topic: str, topic_id: UUID) -> None:
        self.id = node_id
        self.store = store
        self.topic = topic
        self.topic_id = topic_id
        self.config = broker_config(node_id)
        self.life: BrokerLife | None = None
        self.life_count = 1
        self.is_paused = False
        self.clean_epoch = -1
        """Broker epoch in the machine's marker of a clean shutdown, or -1 if there is no marker."""
        self.has_stopped_cleanly = False
        """True if at least one broker process on this machine was shut down cleanly."""
        self.seen = 0
        """Index of the newest metadata image of the controller that a process on this machine has
        applied."""
        self.has_lost_tail = False
        """True if unflushed records at the end of a log on this machine were lost, and no unclean
        registration has reported that to the controller yet."""
        self.is_behind = False
        """True from the loss of unflushed records at the end of a log until the replicas of this
        machine are in sync again."""
        self.lost: set[int] = set()
        """Indexes of the partitions whose replicas on this machine's disk lost acknowledged
        records, until they are in sync again."""
        self.is_loss_named = True
        """True if a registration of this broker has reported every replica in `lost` to the
        controller. These replicas lost acknowledged records."""

    offline: Mapping[TopicPartition, str] = MappingProxyType({})
    losses: Mapping[TopicIdPartition, LogLoss] = MappingProxyType({})
    """Lost logs by partition. Always empty, because the simulation has no offline or lost logs."""

    def __iter__(self) -> Iterator[tuple[TopicPartition, Any]]:
        """Yield no logs: logs that were deleted while the machine was down are removed when a
        process begins."""
        return iter(())

    async def forget_losses(self, whole: Collection[TopicIdPartition]) -> None:
        """Do nothing. The simulation never marks a log as having lost records."""

    def get(self, partition: TopicPartition) -> Any:
        """Return None for every partition, because `create` opens existing logs as well."""
        return None

    async def create(
        self,
        partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        *,
        directory_id: UUID | None = None,
        holds_nothing: bool = True,
    ) -> Any:
        """Return the log of a partition's replica on this machine, and create it if it is
        missing."""
        return self.store.open(partition.partition, topic_id, config)

    async def delete(self, partition: TopicPartition) -> None:
        """Delete the log of a partition's replica from this machine."""
        self.store.delete(partition.partition)

    def directory_of(self, partition: TopicPartition) -> ReplicaDirectory | None:
        """Return None in place of a partition's log directory, because the simulation has no log
        directories."""
        return None

    def apply_retention_soon(self) -> None:
        """Do nothing, since the simulation retains all records."""


_CONFIGS: dict[NodeId, BrokerConfig] = {}


def broker_config(node_id: NodeId) -> BrokerConfig:
    """Return the configuration of a simulated broker. It is cached, because runs are short."""
    found = _CONFIGS.get(node_id)
    if found is None:
        found = _CONFIGS[node_id] = BrokerConfig(
            node_id=node_id,
            replica_lag_time_ms_max=LAG_MS,
            replica_fetch_bytes_max=FETCH_BYTES,
            fetch_session_count_max=SESSION_SLOTS,
        )
    return found


def _raise(error: BaseException) -> None:
    """Raise an unexpected error to end the run, because every such error is a bug."""
    raise error
