"""Clients of tiered topics that expire, have unclean leader elections, or are deleted."""

from collections.abc import Mapping

import trio

from ottla.broker.tier.partition_tier_driver import snapshot_of
from ottla.client.admin import open_admin
from ottla.client.consumer import Consumer, open_consumer
from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.client.produce.delivery import Delivery
from ottla.client.producer import Producer, open_producer
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.faults.tier_faults import FORKED
from ottla.jepsen.world.whole.history import ClientHistory
from ottla.jepsen.world.whole.machine import Machine, SharedWorld
from ottla.jepsen.world.whole.tier.bucket_check import orphans_in
from ottla.jepsen.world.whole.tier.lineage_watch import LineageWatch
from ottla.jepsen.world.whole.tier.tiered import TIERED_CONFIGS, TieredWorkload
from ottla.jepsen.world.whole.workload import (
    RETRY_S,
    WorkloadPlan,
    ignoring_faults,
    machine_time_ms,
)
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ConsumerConfig, ProducerConfig

FADING = "fading"
"""Name of the topic whose records expire during the run."""

BRIEF = "brief"
"""Prefix of the names of the topics that are deleted."""

RETENTIONS: tuple[Mapping[str, str], ...] = (
    {"retention.ms": "3000"},
    {"retention.bytes": "3000", "retention.ms": "-1"},
)
FORKED_CONFIGS = {
    "unclean.leader.election.enable": "true",
    "min.insync.replicas": "1",
    "retention.ms": "-1",
}
WRITE_S = 0.1
"""Longest time in seconds between two records of the writer. A segment has 8 batches."""

BRIEF_RECORDS = 30
BRIEF_S = 3.0
"""Longest time in seconds from the last record of a topic to the topic's deletion."""


class ExpiringWorkload(TieredWorkload):
    """Clients of a tiered topic that loses nothing, and of tiered topics that expire, have unclean
    leader elections, or are deleted."""

    polls_per_scan = 12
    """Number of polls after which the scanner begins again at the start of the logs."""

    watch: LineageWatch
    """Observer of the local logs and of the object store. It knows all records that were
    written."""

    def __init__(
        self,
        world: SharedWorld,
        cluster: SimulatedCluster,
        history: ClientHistory,
        plan: WorkloadPlan,
    ) -> None:
        super().__init__(world, cluster, history, plan)
        self._retention = world.chance.stream("retention").pick(RETENTIONS)
        self._acknowledged: dict[int, bytes] = {}
        """Records of the topic FADING that were acknowledged, by offset."""
        self._brief_count = 0
        self.deleted_count = 0
        """Number of topics that were deleted."""
        self.writer = self._machine("tier-writer", self._write)
        self.scanner = self._machine("tier-scanner", self._scan)
        self._more = [
            self.writer,
            self.scanner,
            self._machine("tier-operator", self._create_and_delete),
        ]

    @property
    def machines(self) -> list[Machine]:
        """Machines of all clients."""
        return [*super().machines, *self._more]

    async def create_topics(self, *, replication_factor: int) -> None:
        """Create the permanent topics (those that exist during the whole run)."""
        await super().create_topics(replication_factor=replication_factor)
        async with open_admin(self._cluster.bootstrap, timeout_s=30.0) as admin:
            for topic, configs in ((FADING, self._retention), (FORKED, FORKED_CONFIGS)):
                await admin.create_topic(
                    topic,
                    partition_count=1,
                    replication_factor=replication_factor,
                    configs={**TIERED_CONFIGS, **configs},
                )

    async def unsettled(self) -> list[str]:
        """Return descriptions of problems that must disappear before the end of the run: unreadable
        records, and objects in the store that belong to no segment."""
        store = self._world.object_store
        return [*self.watch.holes(), *orphans_in(self._cluster, store)]

    async def read_all(self, ends: dict[TopicPartition, int]) -> None:
        """Read all records of the permanent topics, and check them."""
        await super().read_all(ends)
        for topic in (FADING, FORKED):
            await self._read_lineage(TopicPartition(topic, 0))

    # ---- producers

    async def _write(self, machine: Machine, is_stopping: trio.Event) -> None:
        chance = self._chance(machine)
        config = ProducerConfig(
            linger_ms=chance.pick((0, 0, 20)), request_timeout_ms=1_500, delivery_timeout_ms=6_000
        )
        number = 0
        while not is_stopping.is_set():
            name = self._life(machine.name)
            with ignoring_faults():
                async with (
                    open_producer(self._cluster.bootstrap, config) as producer,
                    trio.open_nursery() as nursery,
                ):
                    while not is_stopping.is_set():
                        await trio.sleep(WRITE_S * chance.random())
                        if self.is_quiet:
                            continue
                        topic = chance.pick((FADING, FORKED, FORKED))
                        value = f"{name}/{number}".encode()
                        number += 1
                        delivery = await self._send(producer, topic, value)
                        nursery.start_soon(self._note, topic, value, delivery)
            await trio.sleep(RETRY_S)

    async def _send(self, producer: Producer, topic: str, value: bytes) -> Delivery:
        return await producer.send(topic, value, partition=0, timestamp_ms=machine_time_ms())

    async def _note(self, topic: str, value: bytes, delivery: Delivery) -> None:
        with ignoring_faults():
            acknowledged = await delivery
            if topic == FADING:
                self._acknowledged[int(acknowledged.offset)] = value

    # ---- consumers

    async def _scan(self, machine: Machine, is_stopping: trio.Event) -> None:
        config = ConsumerConfig(
            auto_offset_reset="earliest", fetch_wait_ms_max=200, request_timeout_ms=5_000
        )
        wanted = [TopicPartition(FADING, 0), TopicPartition(FORKED, 0)]
        while not is_stopping.is_set():
            with ignoring_faults():
                async with open_consumer(self._cluster.bootstrap, config) as consumer:
                    consumer.assign(wanted)
                    while not is_stopping.is_set():
                        consumer.seek_to_beginning()
                        for _ in range(self.polls_per_scan):
                            for record in await consumer.poll(0.5):
                                self._check(record)
            await trio.sleep(RETRY_S)

    def _check(self, record: ConsumerRecord) -> None:
        found = self.watch.leader_of(record.topic, record.partition)
        if found is not None:
            self.watch.records.check(
                found[0], record.offset, record.leader_epoch, record.value or b""
            )

    async def _read_lineage(self, at: TopicPartition) -> None:
        """Read a partition from its start to its end, and check that the records are identical to
        the leader's log and have no gap."""
        config = ConsumerConfig(auto_offset_reset="earliest", request_timeout_ms=5_000)
        async with open_consumer(self._cluster.bootstrap, config) as consumer:
            start = (await consumer.beginning_offsets([at]))[at]
            end = (await consumer.end_offsets([at]))[at]
            consumer.assign([at])
            consumer.seek_to_beginning(at)
            expected = int(start)
            while await consumer.position(at) < end:
                for record in await consumer.poll(5.0):
                    self._check_in_lineage(at, record, expected)
                    expected = record.offset + 1
        await self._check_nothing_lost(consumer, at, int(start))

    def _check_in_lineage(self, at: TopicPartition, record: ConsumerRecord, expected: int) -> None:
        found = self.watch.leader_of(at.topic, at.partition)
        if found is None:
            raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, f"{at} has no leader")
        key, log = found
        offset = record.offset
        if offset < expected or (expected < offset and offset > log.log_start_offset):
            raise Violation("ReadWithoutGap", f"{at}: {offset} was read after {expected - 1}")
        epoch = snapshot_of(log).lineage.epoch_of(offset)
        if offset >= log.log_start_offset and epoch != record.leader_epoch:
            raise Violation(
                "ReadInOneLineage",
                f"{at}: the record read at {offset} has epoch {record.leader_epoch}, not {epoch}",
            )
        self.watch.records.check(key, offset, record.leader_epoch, record.value or b"")
        sent = self._acknowledged.get(int(offset)) if at.topic == FADING else None
        if sent is not None and sent != record.value:
            raise Violation(
                "NoAcknowledgedRecordLost",
                f"{at}: {sent!r} was acknowledged at {offset}, and {record.value!r} was read",
            )

    async def _check_nothing_lost(self, consumer: Consumer, at: TopicPartition, start: int) -> None:
        """Check that the log of the topic FADING contains offsets up to the last acknowledged
        record."""
        found = self.watch.leader_of(at.topic, at.partition)
        last = max(self._acknowledged, default=-1)
        if at.topic == FADING and found is not None and found[1].end_offset <= last:
            raise Violation(
                "NoAcknowledgedRecordLost",
                f"{at} ends at {found[1].end_offset}, and {last} was acknowledged",
            )

    # ---- topics that are deleted

    async def _create_and_delete(self, machine: Machine, is_stopping: trio.Event) -> None:
        chance = self._chance(machine)
        while not is_stopping.is_set():
            await trio.sleep(RETRY_S)
            if self.is_quiet:
                continue
            self._brief_count += 1
            name = f"{BRIEF}-{self._brief_count}"
            with ignoring_faults():
                await self._use_briefly(name, BRIEF_S * chance.random())
            is_deleted = False
            while not is_deleted:
                with ignoring_faults():
                    await self._delete_topic(name)
                    is_deleted = True
                await trio.sleep(RETRY_S)
            self.deleted_count += 1

    async def _use_briefly(self, name: str, pause_s: float) -> None:
        config = ProducerConfig(linger_ms=0, request_timeout_ms=1_500, delivery_timeout_ms=3_000)
        async with open_admin(self._cluster.bootstrap, timeout_s=10.0) as admin:
            await admin.create_topic(name, partition_count=1, configs=TIERED_CONFIGS)
        async with open_producer(self._cluster.bootstrap, config) as producer:
            for number in range(BRIEF_RECORDS):
                await (
                    await producer.send(
                        name, b"%d" % number, partition=0, timestamp_ms=machine_time_ms()
                    )
                )
        await trio.sleep(pause_s)

    async def _delete_topic(self, name: str) -> None:
        async with open_admin(self._cluster.bootstrap, timeout_s=10.0) as admin:
            try:
                await admin.delete_topic(name)
            except RefusedError as refusal:
                if refusal.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
