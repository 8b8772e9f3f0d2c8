"""The clients of a simulated run: they produce, read by assignment and in groups, and create and
delete topics.

Each client is a process on a separate machine and uses `ottla.client` like a user. It is killed and
restarted like any node. Errors that faults may cause are caught here. Any other error ends the run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import trio

from ottla.client.admin import open_admin
from ottla.client.consumer import Consumer, open_consumer
from ottla.client.network.connection import ConnectionLostError
from ottla.client.produce.delivery import Delivery
from ottla.client.produce.partition_queue import NotDeliveredError
from ottla.client.producer import Producer, open_producer
from ottla.jepsen.checkers.compacted import record_key_of
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.whole.client_events import (
    FINAL,
    SUBSCRIBED,
    identity_of,
    key_of,
    records_by_key,
)
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.history import ClientHistory
from ottla.jepsen.world.whole.machine import Machine, SharedWorld
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ConsumerConfig, ProducerConfig

PASSING = "passing-"
"""Prefix of the names of topics that are created and deleted. Their records are older than the
retention time, so each replica removes them at a different time."""

TROUBLE = (ConnectionLostError, NotDeliveredError, ProtocolError, RefusedError, trio.TooSlowError)
"""Exceptions that calls of the client library may raise while the cluster has faults."""

IN_FLIGHT_MAX = 8
"""Number of unacknowledged records at which a simulated producer waits before it sends more."""

RETRY_S = 0.5
MEMBER_PATIENCE_S = 0.5
COMPACTED_CONFIGS = {"cleanup.policy": "compact"}
"""Topic settings of compacted topics. How often the brokers compact them is a broker setting."""

LOOKS = 2
"""Average number of offset commits per commit that follows a check of the earlier commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPlan:
    """Amount and kind of the work of a simulated run's clients."""

    topics: tuple[str, ...]
    """Names of the topics that exist during the whole run."""
    partition_count: int
    producer_count: int
    reader_count: int
    member_count: int
    has_churn: bool
    """True if clients create and delete further topics during the run."""
    send_interval_s: float
    compression: str = "none"
    age_ms: int = 0
    """Age in ms of records when clients send them: the timestamps are this much in the past."""
    record_key_count: int = 0
    """Number of record keys that producers use in each log. Logs are compacted if it is above 0. If
    it is 0, records have no key."""


class ClientWorkload:
    """The clients of one run of a simulated cluster."""

    def __init__(
        self,
        world: SharedWorld,
        cluster: SimulatedCluster,
        history: ClientHistory,
        plan: WorkloadPlan,
    ) -> None:
        self.group = "readers"
        self.is_quiet = False
        """True at the end of the simulated run, when producers must stop sending."""
        self.topic_change_count = 0
        self.gap_count = 0
        """Number of times that the next record of a reading client did not have the next offset."""
        self._world = world
        self._cluster = cluster
        self._history = history
        self._plan = plan
        self._lives = 0
        self.producers = [
            self._machine(f"producer-{n}", self._produce) for n in range(plan.producer_count)
        ]
        self.readers = [self._machine(f"reader-{n}", self._read) for n in range(plan.reader_count)]
        self.members = [
            self._machine(f"member-{n}", self._take_part) for n in range(plan.member_count)
        ]
        self.operators = [self._machine("operator", self._churn)] if plan.has_churn else []

    @property
    def machines(self) -> list[Machine]:
        """Machines of all clients."""
        return [*self.producers, *self.readers, *self.members, *self.operators]

    @property
    def partitions(self) -> list[TopicPartition]:
        """Partitions of the permanent topics (those that exist during the whole run)."""
        numbers = range(self._plan.partition_count)
        return [TopicPartition(topic, number) for topic in self._plan.topics for number in numbers]

    async def create_topics(self, *, replication_factor: int) -> None:
        """Create the permanent topics (those that exist during the whole run)."""
        async with open_admin(self._cluster.bootstrap, timeout_s=30.0) as admin:
            for topic in self._plan.topics:
                await admin.create_topic(
                    topic,
                    partition_count=self._plan.partition_count,
                    replication_factor=replication_factor,
                    configs=self._topic_configs(),
                )

    def _topic_configs(self) -> dict[str, str] | None:
        return COMPACTED_CONFIGS if self._plan.record_key_count else None

    async def unsettled(self) -> list[str]:
        """Return a description of each client operation that must still end before the final reads
        of all records can begin."""
        return []

    async def probe(
        self, patience_s: float, partitions: Sequence[TopicPartition] | None = None
    ) -> None:
        """Deliver one record to each partition in `partitions` with a new producer. None means all
        partitions of the permanent topics. Waits at most `patience_s` seconds.

        Raises NotDeliveredError if a record is not delivered.
        """
        name = self._life("probe")
        config = ProducerConfig(
            delivery_timeout_ms=int(patience_s * 1_000), request_timeout_ms=5_000, linger_ms=0
        )
        async with open_producer(self._cluster.bootstrap, config) as producer:
            for at in self.partitions if partitions is None else partitions:
                await self._send_one(producer, at, f"{name}/0".encode())

    async def read_all(self, ends: dict[TopicPartition, int]) -> None:
        """Read every partition from its start to its end offset in `ends`, and check its
        records."""
        config = ConsumerConfig(auto_offset_reset="earliest", request_timeout_ms=5_000)
        events = self._history.events
        async with open_consumer(self._cluster.bootstrap, config) as consumer:
            for at in self.partitions:
                found: dict[int, bytes] = {}
                process = events.process()
                consumer.assign([at])
                consumer.seek_to_beginning(at)
                while await consumer.position(at) < ends[at]:
                    begun = events.begins_poll(process, FINAL)
                    records = await consumer.poll(5.0)
                    events.ends_poll(begun, records)
                    for record in records:
                        found[record.offset] = record.value or b""
                self._history.on_final_read(at, found, end=ends[at])

    async def read_from_start(self, at: TopicPartition) -> None:
        """Read a partition from its start until the caller cancels, and check each record.

        Raises CorruptDataError if a batch is damaged.
        """
        config = ConsumerConfig(auto_offset_reset="earliest", request_timeout_ms=5_000)
        async with open_consumer(self._cluster.bootstrap, config) as consumer:
            consumer.assign([at])
            consumer.seek_to_beginning(at)
            await self._poll(consumer, trio.Event())

    async def end_offsets(self) -> dict[TopicPartition, int]:
        """Return the end offset of each partition of the permanent topics."""
        self._history.events.final_reads_begin()
        async with open_consumer(self._cluster.bootstrap) as consumer:
            floors = {at: self._history.of(at).acknowledged_offset_max for at in self.partitions}
            found = dict(await consumer.end_offsets(self.partitions))
        for at, end in found.items():
            self._history.on_end_offset(at, end, floor=floors[at])
        return {at: int(end) for at, end in found.items()}

    async def committed_offsets(self) -> dict[TopicPartition, int]:
        """Return the committed offsets of the clients' group. Each is checked against the commits
        that were acknowledged before the request."""
        floors = {at: self._history.committed_floor(self.group, at) for at in self.partitions}
        async with open_admin(self._cluster.bootstrap, timeout_s=20.0) as admin:
            answer = await admin.group_offsets(self.group)
        found = {at: int(answer[at].offset) if at in answer else 0 for at in self.partitions}
        for at, offset in found.items():
            self._history.on_committed_read(self.group, at, offset, floor=floors[at])
        return found

    # ---- producers

    async def _produce(self, machine: Machine, is_stopping: trio.Event) -> None:
        chance, name = self._chance(machine), self._life(machine.name)
        config = ProducerConfig(
            linger_ms=chance.pick((0, 0, 5, 20)),
            request_timeout_ms=chance.pick((1_500, 5_000)),
            delivery_timeout_ms=chance.pick((8_000, 20_000)),
            compression_type=self._plan.compression,
            client_id=machine.name,
        )
        number = 0
        while not is_stopping.is_set():
            with ignoring_faults():
                async with open_producer(self._cluster.bootstrap, config) as producer:
                    number = await self._send_many(producer, chance, name, number, is_stopping)
            await trio.sleep(RETRY_S)
            name = self._life(machine.name)

    async def _send_many(
        self,
        producer: Producer,
        chance: Chance,
        name: str,
        number: int,
        is_stopping: trio.Event,
    ) -> int:
        waiting: dict[int, None] = {}
        room = trio.Event()

        async def judge(at: TopicPartition, value: bytes, delivery: Delivery) -> None:
            nonlocal room
            with ignoring_faults():
                self._history.on_acknowledged(at, value, (await delivery).offset)
            waiting.popitem()
            room.set()

        async with trio.open_nursery() as nursery:
            while not is_stopping.is_set():
                await trio.sleep(self._plan.send_interval_s * 2 * chance.random())
                while len(waiting) >= IN_FLIGHT_MAX or self.is_quiet:
                    if self.is_quiet and not waiting:
                        await is_stopping.wait()
                        return number
                    room = trio.Event()
                    await room.wait()
                at = chance.pick(self.partitions)
                value = f"{name}/{number}".encode()
                number += 1
                self._history.on_send(at, value)
                delivery = await producer.send(
                    at.topic,
                    value,
                    key=self._record_key(value),
                    partition=at.partition,
                    headers=self._record_headers(value),
                    timestamp_ms=machine_time_ms() - self._plan.age_ms,
                )
                waiting[number] = None
                nursery.start_soon(judge, at, value, delivery)
        return number

    async def _send_one(self, producer: Producer, at: TopicPartition, value: bytes) -> None:
        self._history.on_send(at, value)
        delivery = await producer.send(
            at.topic,
            value,
            key=self._record_key(value),
            partition=at.partition,
            headers=self._record_headers(value),
            timestamp_ms=machine_time_ms(),
        )
        self._history.on_acknowledged(at, value, (await delivery).offset)

    def _record_key(self, value: bytes) -> bytes | None:
        count = self._plan.record_key_count
        return b"%d" % record_key_of(value.decode(), count) if count else None

    def _record_headers(self, value: bytes) -> Sequence[tuple[str, bytes]]:
        return ()

    # ---- consumers

    async def _read(self, machine: Machine, is_stopping: trio.Event) -> None:
        chance = self._chance(machine)
        config = ConsumerConfig(
            auto_offset_reset="earliest",
            fetch_wait_ms_max=chance.pick((100, 500)),
            request_timeout_ms=5_000,
            client_id=machine.name,
        )
        while not is_stopping.is_set():
            with ignoring_faults():
                async with open_consumer(self._cluster.bootstrap, config) as consumer:
                    consumer.assign(self.partitions)
                    consumer.seek_to_beginning()
                    await self._poll(consumer, is_stopping)
            await trio.sleep(RETRY_S)

    async def _poll(self, consumer: Consumer, is_stopping: trio.Event) -> None:
        last: dict[TopicPartition, int] = {}
        events = self._history.events
        process = events.process()
        while not is_stopping.is_set():
            begun = events.begins_poll(process)
            records = await consumer.poll(1.0)
            events.ends_poll(begun, records)
            for record in records:
                at = TopicPartition(record.topic, record.partition)
                self._history.on_read(at, record.value or b"", record.offset)
                if record.offset <= last.get(at, -1):
                    self._history.break_(
                        "ReadsGoForward", f"{at}: {record.offset} came after {last[at]}"
                    )
                self.gap_count += at in last and record.offset > last[at] + 1
                last[at] = record.offset

    async def _take_part(self, machine: Machine, is_stopping: trio.Event) -> None:
        chance = self._chance(machine)
        config = ConsumerConfig(
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            request_timeout_ms=5_000,
            default_api_timeout_ms=10_000,
            partition_assignment_strategy=("range", "roundrobin"),
            client_id=machine.name,
        )
        while not is_stopping.is_set():
            with ignoring_faults():
                async with open_consumer(self._cluster.bootstrap, config) as consumer:
                    consumer.subscribe(self._plan.topics)
                    await self._process(consumer, chance, is_stopping)
            await trio.sleep(RETRY_S)

    async def _process(self, consumer: Consumer, chance: Chance, is_stopping: trio.Event) -> None:
        history, events = self._history, self._history.events
        process = events.process()
        while not is_stopping.is_set():
            ends: dict[TopicPartition, int] = {}
            identity = identity_of(consumer)
            begun = events.begins_poll(process, SUBSCRIBED)
            polled = events.begins_as_member("poll", self.group)
            records = await consumer.poll(MEMBER_PATIENCE_S)
            events.ends_poll(begun, records)
            events.ends_as_member(polled, identity, consumer, records_by_key(records))
            for record in records:
                at = TopicPartition(record.topic, record.partition)
                history.on_read(at, record.value or b"", record.offset)
                history.on_processed(self.group, at, record.offset)
                ends[at] = record.offset + 1
            if not ends:
                continue
            if chance.below(LOOKS) == 0:
                # This check comes first, because a newer commit would hide the loss of an earlier
                # one.
                with ignoring_faults():
                    await self._look_at_commits(consumer)
            with ignoring_faults():
                identity = identity_of(consumer)
                keys = {key_of(at): offset for at, offset in ends.items()}
                value = {"group": self.group, "keys": keys}
                begun = events.begins("commit", value)
                await consumer.commit(ends)
                events.ends_as_member(begun, identity, consumer, keys)
                history.on_committed(self.group, ends)

    async def _look_at_commits(self, consumer: Consumer) -> None:
        floors = {at: self._history.committed_floor(self.group, at) for at in self.partitions}
        begun = self._history.events.begins("fetch", {"group": self.group})
        answer = await consumer.committed(self.partitions)
        keys = {key_of(at): int(answer[at].offset) if at in answer else None for at in floors}
        self._history.events.ends(begun, {"group": self.group, "keys": keys})
        for at, floor in floors.items():
            offset = int(answer[at].offset) if at in answer else 0
            self._history.on_committed_read(self.group, at, offset, floor=floor)

    # ---- topics that are created and deleted

    async def _churn(self, machine: Machine, is_stopping: trio.Event) -> None:
        chance = self._chance(machine)
        while not is_stopping.is_set():
            await trio.sleep(1.0 + 4.0 * chance.random())
            name = f"{PASSING}{chance.below(3)}"
            with ignoring_faults():
                await self._change_topic(name, chance)

    async def _change_topic(self, name: str, chance: Chance) -> None:
        async with open_admin(self._cluster.bootstrap, timeout_s=10.0) as admin:
            try:
                if name in await admin.list_topics():
                    await admin.delete_topic(name)
                else:
                    await admin.create_topic(name, partition_count=1 + chance.below(3))
                    await self._use_topic(name)
                self.topic_change_count += 1
            except RefusedError as refusal:
                # A repeated request may meet its own effect.
                if refusal.code not in (
                    ErrorCode.TOPIC_ALREADY_EXISTS,
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ):
                    raise

    async def _use_topic(self, name: str) -> None:
        config = ProducerConfig(delivery_timeout_ms=5_000, request_timeout_ms=2_000)
        async with open_producer(self._cluster.bootstrap, config) as producer:
            for number in range(5):
                await (await producer.send(name, b"%d" % number, partition=0, timestamp_ms=1))

    # ---- all clients

    def _machine(self, name: str, run: Callable[[Machine, trio.Event], object]) -> Machine:
        return Machine(self._world, name, run)  # type: ignore[arg-type]

    def _chance(self, machine: Machine) -> Chance:
        return self._world.chance.stream(f"client/{machine.name}/{machine.start_count}")

    def _life(self, name: str) -> str:
        """Return a client name that is unique in the run. The client's record values are then
        unique as well."""
        self._lives += 1
        return f"{name}.{self._lives}"


class ignoring_faults:  # noqa: N801 - reads as a sentence after `with`
    """Context manager that suppresses the errors that faults may cause, whether they are raised
    alone or in an exception group."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return error is not None and _is_trouble(error)


def _is_trouble(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_trouble(part) for part in error.exceptions)
    return isinstance(error, TROUBLE)


def machine_time_ms() -> int:
    """Return the virtual time of the run in ms since 1970, for the timestamp of a record."""
    return 1_767_225_600_000 + int(trio.current_time() * 1_000)
