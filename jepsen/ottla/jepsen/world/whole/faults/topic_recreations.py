"""Topics that are deleted and created again under the same name, and settings that change, while a
broker is down or starting.

The files, checkpoints and pending work of a deleted topic must not affect the new topic with its
name. Invariants:

- RebornIsWhole: records acknowledged after the topic was created again exist, from offset 0;
- SettingsInForce: every log uses the settings in the image.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import trio

from ottla.broker.broker_driver import Broker
from ottla.broker.cluster.membership.lifecycle import BrokerState
from ottla.broker.cluster.settings.dynamic_settings import (
    PRODUCER_ID_EXPIRATION_MS,
    setting_in_force,
)
from ottla.broker.cluster.settings.topic_settings import topic_config_of, topic_defaults_of_image
from ottla.client.admin import Admin, open_admin
from ottla.client.consumer import open_consumer
from ottla.client.producer import open_producer
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.faults.cluster_faults import ClusterFaults, FaultContext
from ottla.jepsen.world.whole.machine import Machine
from ottla.jepsen.world.whole.workload import PASSING, TROUBLE, machine_time_ms
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ConsumerConfig, ProducerConfig
from ottla.storage.segments.log_config import LogConfig

PATIENCE_S = 60.0
"""Virtual time in seconds after which the test of one recreated topic is abandoned."""

SLOW_START_S = 0.1
"""Delay in seconds of every disk call while a broker starts, so that more other events happen
during its startup."""

DOWN_MS = (20, 3_000)
START_MS = (0, 1_500)
"""Range of the delay in ms between the moment when a broker begins to open its logs and the next
action on its topics."""

RECOVERY_S_MAX = 5.0
SOON_MS = (0, 3_000)
SERVED_S_MAX = 2.0
"""Time in seconds within which a DeleteRecords request must reach the log of its partition."""

REMOVAL_MS = (50, 500)
"""Range of the time in ms from the start of a DeleteRecords request to the deletion of its topic.
"""

BEHIND_MS = (500, 3_000)
"""Shortest and longest time in ms for which a DeleteRecords request still waits for the disk after
its topic was deleted."""

RECORDS_MAX = 30
SHORT_SEGMENTS = {"segment.ms": "5"}
"""Topic setting that puts nearly every record into a separate segment. A removal of the topic then
has many files to remove."""

RETENTIONS_MS = ("-1", "10000000000", "11000000000", "12000000000")
"""Possible values of `retention.ms` (in ms) in a settings change, which chooses one at random. All
of them are long enough to keep the records of the run's clients."""


@dataclass(slots=True)
class RecreatedTopic:
    """State of the latest instance of a topic with one partition that is repeatedly deleted and
    created."""

    at: TopicPartition
    is_alive: bool = False
    """True if the topic was certainly created and has not been deleted again."""
    acknowledged: dict[int, bytes] = field(default_factory=dict)


class TopicRecreations(ClusterFaults):
    """Faults that delete topics and create them again under their names, and change their
    settings."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context)
        self._is_busy = False
        self._reborn: list[RecreatedTopic] = []

    # ---- recreation of a topic

    async def recreate(self) -> None:
        """Create a topic, delete it while a broker is down or starting, create it again, and send
        records to it."""
        machine = self._pick_broker()
        if self._is_busy or machine.name in self._cluster.unready():
            return
        self._is_busy = True
        self._counts["re-created topics"] += 1
        topic = self._next_topic()
        with trio.move_on_after(PATIENCE_S):
            try:
                await self._live_twice(topic, machine)
            except* TROUBLE:
                pass
        machine.slow_disk_s = 0.0
        self._is_busy = False
        if not machine.is_running:
            machine.start()

    def _next_topic(self) -> RecreatedTopic:
        topic = RecreatedTopic(TopicPartition(f"reborn-{len(self._reborn)}", 0))
        self._reborn.append(topic)
        return topic

    async def _live_twice(self, topic: RecreatedTopic, machine: Machine) -> None:
        async with open_admin(self._cluster.bootstrap, timeout_s=20.0) as admin:
            await self._create(admin, topic.at.topic)
            sent = await self._use(topic.at, 1 + self._chance.below(RECORDS_MAX), life=1)
            if self._chance.below(8):
                before = 1 + self._chance.below(len(sent))
                await self._cut_start(admin, topic.at, before)
            order = self._chance.below(4)
            if order:
                await self._end(machine)
            if order == 3:
                await self._start_slowly(machine)
            await self._delete(admin, topic.at.topic)
            if order == 2:
                await self._start_slowly(machine)
            await self._create(admin, topic.at.topic)
            topic.is_alive = True
            if order == 1:
                await self._start_slowly(machine)
            topic.acknowledged = await self._use(topic.at, self._chance.below(RECORDS_MAX), life=2)
            machine.slow_disk_s = 0.0
            self._rare.sometimes(f"a topic is made again{ORDERS[order]}")
            await self._wait(SOON_MS)
            await self._strike(machine)

    async def _strike(self, machine: Machine) -> None:
        """Kill a machine's broker or cut its power, and start the broker again after a while. Does
        nothing in a random quarter of the calls, or if the broker may not be killed now."""
        kind = self._chance.below(4)
        if not kind or not machine.is_running or not self._loss_limit.may_die(machine):
            return
        if kind == 1 and self._loss_limit.allow_loss(machine):
            self._counts["power cuts"] += 1
            machine.cut_power()
        else:
            self._counts["crashes"] += 1
            machine.kill()
        await self._wait(DOWN_MS)
        if not machine.is_running:
            machine.start()

    # ---- a removal that outlives its topic

    async def recreate_during_removal(self) -> None:
        """Delete a topic, and create it again while a slow disk delays the removal of its files."""
        if self._is_busy or self._cluster.unready():
            return
        self._is_busy = True
        self._counts["removals that waited"] += 1
        topic = self._next_topic()
        with trio.move_on_after(PATIENCE_S):
            try:
                await self._recreate_during_removal(topic)
            except* TROUBLE:
                pass
        self._is_busy = False

    async def _recreate_during_removal(self, topic: RecreatedTopic) -> None:
        name = topic.at.topic
        async with open_admin(self._cluster.bootstrap, timeout_s=20.0) as admin:
            await self._create(admin, name, SHORT_SEGMENTS)
            count = len(await self._use(topic.at, 2 + self._chance.below(RECORDS_MAX), life=1))
            machine = self._leader_of(topic.at)
            if machine is None:
                return
            path = self._first_file_of(machine, topic.at)
            is_waiting, goes_on = trio.Event(), trio.Event()

            async def wait() -> None:
                is_waiting.set()
                await goes_on.wait()

            machine.disk.faults.hang(path, wait)
            try:
                async with trio.open_nursery() as nursery:
                    client = trio.CancelScope()
                    nursery.start_soon(self._remove, topic.at, count, client)
                    with trio.move_on_after(SERVED_S_MAX):
                        await is_waiting.wait()
                    await self._wait(REMOVAL_MS)
                    # DeleteRecords has the topic's name, as in Kafka: a repeated request would
                    # rightly be served by the next topic of that name.
                    client.cancel()
                    if not is_waiting.is_set():
                        return
                    await self._delete(admin, name)
                    nursery.start_soon(self._let_go_on, machine, path, goes_on)
                    await self._create(admin, name)
                    topic.is_alive = True
                    topic.acknowledged = await self._use(
                        topic.at, self._chance.below(RECORDS_MAX), life=2
                    )
                    await goes_on.wait()
                    nursery.cancel_scope.cancel()
            finally:
                machine.disk.faults.give_back(path)
                goes_on.set()
            self._rare.sometimes("a topic is made again while its removal waits")
            await self._wait(SOON_MS)

    async def _remove(self, at: TopicPartition, before: int, scope: trio.CancelScope) -> None:
        try:
            with scope:
                async with open_admin(self._cluster.bootstrap, timeout_s=20.0) as admin:
                    await admin.delete_records({at: before})
        except* TROUBLE:
            pass

    async def _let_go_on(self, machine: Machine, path: str, goes_on: trio.Event) -> None:
        await self._wait(BEHIND_MS)
        machine.disk.faults.give_back(path)
        goes_on.set()

    def _leader_of(self, at: TopicPartition) -> Machine | None:
        image = self._cluster.latest_image
        topic = None if image is None else image.topic(at.topic)
        if topic is None:
            return None
        return self._cluster.broker_machines.get(topic.partitions[at.partition].leader)

    def _first_file_of(self, machine: Machine, at: TopicPartition) -> str:
        """Return the path of the file that contains the oldest records of a partition on a broker's
        machine."""
        return min(
            path
            for directory in self._cluster.log_directories
            for path in machine.disk.files_in(directory)
            if f"/{at}/" in path and path.endswith(".log")
        )

    # ---- requests of operators

    async def _create(
        self, admin: Admin, name: str, configs: Mapping[str, str] | None = None
    ) -> None:
        replica_count = min(3, len(self._cluster.broker_machines))
        try:
            await admin.create_topic(
                name, partition_count=1, replication_factor=replica_count, configs=configs
            )
        except RefusedError as refusal:
            if refusal.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise  # An existing topic was created by an earlier attempt of the same request.

    async def _delete(self, admin: Admin, name: str) -> None:
        while True:
            try:
                await admin.delete_topic(name)
                return
            except RefusedError as refusal:
                if refusal.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    return
            await trio.sleep(0.5)

    async def _cut_start(self, admin: Admin, at: TopicPartition, before: int) -> None:
        try:
            await admin.delete_records({at: before})
            self._rare.sometimes("a topic with a log start above 0 is deleted")
        except RefusedError as refusal:
            if refusal.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise

    async def _use(self, at: TopicPartition, count: int, *, life: int) -> dict[int, bytes]:
        """Send `count` records, one after another, to a partition of a topic that was created
        again. Returns the acknowledged records by offset.

        `life` is the number of creations of the topic so far, which the records contain.
        """
        config = ProducerConfig(delivery_timeout_ms=8_000, request_timeout_ms=2_000, linger_ms=0)
        found: dict[int, bytes] = {}
        async with open_producer(self._cluster.bootstrap, config) as producer:
            for number in range(count):
                value = b"%s/%d/%d" % (at.topic.encode(), life, number)
                delivery = await producer.send(
                    at.topic, value, partition=at.partition, timestamp_ms=machine_time_ms()
                )
                found[(await delivery).offset] = value
        return found

    # ---- settings

    async def change_settings(self) -> None:
        """Change a topic's retention while a broker starts."""
        machine = self._pick_broker()
        topic = self._chance.pick(self._workload.partitions).topic
        retention = self._chance.pick(RETENTIONS_MS)
        if self._is_busy or machine.name in self._cluster.unready():
            return
        self._is_busy = True
        self._counts["changed settings"] += 1
        with trio.move_on_after(PATIENCE_S):
            try:
                await self._end(machine)
                await self._start_slowly(machine)
                async with open_admin(self._cluster.bootstrap, timeout_s=10.0) as admin:
                    await admin.alter_topic_configs(topic, {"retention.ms": retention})
                self._rare.sometimes("a setting changes while a broker starts")
            except* TROUBLE:
                pass
            await self._wait(SOON_MS)
        machine.slow_disk_s = 0.0
        self._is_busy = False
        if not machine.is_running:
            machine.start()

    # ---- checks at the end

    async def judge(self) -> None:
        """Read every recreated topic and check its records. Raises Violation if an acknowledged
        record is missing."""
        config = ConsumerConfig(auto_offset_reset="earliest", request_timeout_ms=5_000)
        async with open_consumer(self._cluster.bootstrap, config) as consumer:
            for topic in self._reborn:
                if not topic.is_alive:
                    continue
                at = topic.at
                consumer.assign([at])
                start = (await consumer.beginning_offsets([at]))[at]
                end = (await consumer.end_offsets([at]))[at]
                if start:
                    raise Violation("RebornIsWhole", f"{at} begins at {start}, ends at {end}")
                consumer.seek_to_beginning(at)
                found: dict[int, bytes] = {}
                while await consumer.position(at) < end:
                    for record in await consumer.poll(5.0):
                        found[record.offset] = record.value or b""
                for offset, value in topic.acknowledged.items():
                    if found.get(offset) != value:
                        raise Violation(
                            "RebornIsWhole",
                            f"{at}: {value!r} was acknowledged at {offset}, it ends at {end}"
                            f" and has {found.get(offset)!r} there",
                        )

    # ---- choices

    def _pick_broker(self) -> Machine:
        return self._chance.pick([*self._cluster.broker_machines.values()])

    async def _end(self, machine: Machine) -> None:
        """Stop a machine's broker as an operator does, or kill it if the loss limit allows that."""
        if not machine.is_running or machine.is_paused:
            return
        if self._chance.below(3) == 2 and self._loss_limit.may_die(machine):
            machine.kill()
            await machine.has_ended.wait()
        else:
            with trio.move_on_after(20):
                await machine.stop()

    async def _start_slowly(self, machine: Machine) -> None:
        if machine.is_running:
            return
        machine.slow_disk_s = SLOW_START_S if self._chance.below(2) else 0.0
        machine.start()
        with trio.move_on_after(RECOVERY_S_MAX):
            while not self._is_recovering(machine):
                await trio.sleep(0.01)
        await self._wait(START_MS)

    def _is_recovering(self, machine: Machine) -> bool:
        """Return whether a machine's broker is opening its logs and already has its metadata
        image."""
        for node, broker in self._cluster.brokers.items():
            if self._cluster.broker_machines[node] is machine:
                return broker.lifecycle.lifecycle.state >= BrokerState.RECOVERY
        return False


ORDERS = (
    "",
    " while a broker is down",
    " after a broker missed its end",
    " while a broker starts",
)


def settings_not_in_force(cluster: SimulatedCluster) -> list[str]:
    """Return the logs whose settings differ from the settings in the metadata image of their
    broker."""
    found = []
    for node, broker in sorted(cluster.brokers.items()):
        for partition in broker.table:
            log = partition.log
            if log is None:
                continue
            said = _log_config(broker, partition.topic)
            if log.config != said:
                found.append(
                    f"broker {node}: {partition.topic}-{partition.index} is kept"
                    f" {log.config.retention_ms} ms, the image says {said.retention_ms}"
                )
    return found


def replicas_that_differ(cluster: SimulatedCluster) -> list[str]:
    """Return the partitions whose replicas do not begin or end at the same offset.

    If retention is active, the log starts may differ, since a follower may apply retention before
    its leader.
    """
    spans: dict[TopicPartition, dict[int, tuple[int, int]]] = {}
    for node, broker in sorted(cluster.brokers.items()):
        for partition in broker.table:
            log = partition.log
            at = TopicPartition(partition.topic, partition.index)
            span = (-1, -1) if log is None else (log.log_start_offset, log.end_offset)
            if log is not None and partition.topic.startswith(PASSING):
                span = (0, log.end_offset)
            spans.setdefault(at, {})[node] = span
    return [f"{at}: {found}" for at, found in sorted(spans.items()) if len({*found.values()}) > 1]


def _log_config(broker: Broker, topic: str) -> LogConfig:
    image = broker.table.image
    config = topic_config_of(image, topic, topic_defaults_of_image(image, broker.config))
    expiration_ms = setting_in_force(image, broker.config, PRODUCER_ID_EXPIRATION_MS)
    return LogConfig.of_topic(config, producer_id_expiration_ms=expiration_ms)
