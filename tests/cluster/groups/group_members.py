"""Members of one group in a process of their own: they join, read, commit, leave and rejoin.

Run as a program with a `Plan` in JSON. Each partition assigned or revoked, each record read and
each acknowledged commit is in the ledger at once, so that SIGKILL loses nothing of it. SIGUSR1 ends
joins and leaves: the present members stay. SIGUSR2 restarts the members one after the other, as a
deployment does. SIGTERM ends the process.
"""

import asyncio
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TextIO

BEGUN = "signals are heard"
"""First output line of a process: an earlier signal would end it."""

POLL_S = 0.2
BATCH_COUNT = 100
LIFE_S_MIN = 1.0
ABSENCE_S = (0.0, 1.0)
NO_GENERATION = -1
GENERATION = slice(len(b"CGMDv2:"), len(b"CGMDv2:") + 4)
"""Position of the generation or member epoch in librdkafka's serialised group metadata."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Work of one process of members."""

    bootstrap: str
    group: str
    topic: str
    client: str
    strategy: str
    """An assignor of the members, or one of the coordinator's after `consumer:`."""

    count: int
    seed: int
    ledger: str
    life_s: float
    is_static: bool = False
    session_timeout_ms: int = 6_000
    heartbeat_interval_ms: int = 500


@dataclass
class Diary:
    """Work of one member; owns the records it has read and not committed yet."""

    plan: Plan
    ledger: TextIO
    lock: threading.Lock
    life: str
    generation: Callable[[], int] = lambda: NO_GENERATION
    pending: dict[int, int] = field(default_factory=dict)
    _asked: tuple[int, dict[int, int]] = (NO_GENERATION, {})

    @property
    def instance(self) -> str | None:
        """The name of a member that keeps its partitions while it restarts."""
        return self.life.rpartition("/")[0] if self.plan.is_static else None

    def own(self, partitions: Iterable[int]) -> None:
        """Record that partitions were assigned."""
        self._note("own", partitions=sorted(partitions))

    def give(self, partitions: Iterable[int]) -> None:
        """Record that partitions were revoked; their uncommitted records are no longer
        committed."""
        gone = sorted(partitions)
        for partition in gone:
            self.pending.pop(partition, None)
        self._note("give", partitions=gone)

    def read(self, partition: int, offsets: list[int]) -> None:
        """Record consecutive records that were read."""
        self._note("read", partition=partition, first=offsets[0], last=offsets[-1])
        self.pending[partition] = offsets[-1] + 1

    def begin_commit(self) -> dict[int, int]:
        """Return the offsets to commit now."""
        self._asked = self.generation(), dict(self.pending)
        return self._asked[1]

    def end_commit(self, refused: Collection[int] = ()) -> None:
        """Record the acknowledged offsets, if the whole commit was in one generation."""
        generation, offsets = self._asked
        for partition, offset in offsets.items():
            if partition in refused:
                continue
            if self.pending.get(partition) == offset:
                del self.pending[partition]
            if self.generation() == generation:
                self._note("commit", partition=partition, offset=offset)

    def rolled(self) -> None:
        """Note that a member is back after its restart."""
        self._note("rolled")

    def _note(self, what: str, **more: Any) -> None:
        line = {"what": what, "life": self.life, "instance": self.instance, **more}
        line["generation"] = self.generation()
        with self.lock:
            self.ledger.write(json.dumps(line) + "\n")
            self.ledger.flush()


def live_confluent(plan: Plan, diary: Diary, is_over: Callable[[], bool]) -> None:
    """Live as a member of confluent-kafka, of either protocol."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer(_confluent_settings(plan, diary))

    def generation() -> int:
        try:
            return int.from_bytes(
                consumer.consumer_group_metadata()[GENERATION], sys.byteorder, signed=True
            )
        except RuntimeError:  # it is closed: the last that went
            return NO_GENERATION

    def numbers(found: Iterable[Any]) -> list[int]:
        return [one.partition for one in found]

    diary.generation = generation
    consumer.subscribe(
        [plan.topic],
        on_assign=lambda _, given: diary.own(numbers(given)),
        on_revoke=lambda _, taken: diary.give(numbers(taken)),
        on_lost=lambda _, lost: diary.give(numbers(lost)),
    )
    try:
        while not is_over():
            patience_s = POLL_S
            for _ in range(BATCH_COUNT):
                message = consumer.poll(patience_s)
                if message is None or message.error() is not None:
                    break
                diary.read(message.partition(), [message.offset()])
                patience_s = 0.0
            wanted = diary.begin_commit()
            offsets = [TopicPartition(plan.topic, *one) for one in wanted.items()]
            try:
                done = consumer.commit(offsets=offsets, asynchronous=False) if offsets else []
            except KafkaException:
                continue
            diary.end_commit({one.partition for one in done if one.error is not None})
    finally:
        consumer.close()


def _confluent_settings(plan: Plan, diary: Diary) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": plan.bootstrap,
        "group.id": plan.group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    if diary.instance is not None:
        settings["group.instance.id"] = diary.instance
    protocol, _, assignor = plan.strategy.rpartition(":")
    if protocol:
        return settings | {"group.protocol": protocol, "group.remote.assignor": assignor}
    return settings | {
        "partition.assignment.strategy": plan.strategy,
        "session.timeout.ms": plan.session_timeout_ms,
        "heartbeat.interval.ms": plan.heartbeat_interval_ms,
    }


def live_kafka_python(plan: Plan, diary: Diary, is_over: Callable[[], bool]) -> None:
    """Live as a member of kafka-python."""
    from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # it has no types
        def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
            diary.own(one.partition for one in assigned)

        def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
            diary.give(one.partition for one in revoked)
            if not plan.strategy.startswith("cooperative"):
                # It would keep its positions, and go on at them when the same partitions come back
                # later, though others read and committed in the generations that it missed.
                consumer._subscription.assign_from_subscribed([])

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
    consumer = KafkaConsumer(
        bootstrap_servers=plan.bootstrap,
        group_id=plan.group,
        group_instance_id=diary.instance,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=plan.session_timeout_ms,
        heartbeat_interval_ms=plan.heartbeat_interval_ms,
        partition_assignment_strategy=(assignors[plan.strategy],),
    )
    diary.generation = lambda: consumer._coordinator._generation.generation_id
    consumer.subscribe([plan.topic], listener=Listener())
    try:
        while not is_over():
            _note_all(diary, consumer.poll(POLL_S * 1_000))
            wanted = diary.begin_commit()
            try:
                if wanted:
                    consumer.commit(
                        {
                            TopicPartition(plan.topic, partition): OffsetAndMetadata(offset, "", -1)
                            for partition, offset in wanted.items()
                        }
                    )
            except KafkaError:
                continue
            diary.end_commit()
    finally:
        consumer.close()


def live_aiokafka(plan: Plan, diary: Diary, is_over: Callable[[], bool]) -> None:
    """Live as a member of aiokafka."""
    asyncio.run(_live_aiokafka(plan, diary, is_over))


async def _live_aiokafka(plan: Plan, diary: Diary, is_over: Callable[[], bool]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.errors import KafkaError

    # It rebalances beside the application: without this a commit could meet the next generation.
    committing = asyncio.Lock()

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # it has no types
        async def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
            diary.own(one.partition for one in assigned)

        async def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
            async with committing:
                diary.give(one.partition for one in revoked)

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }
    consumer = AIOKafkaConsumer(
        bootstrap_servers=plan.bootstrap,
        group_id=plan.group,
        group_instance_id=diary.instance,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=plan.session_timeout_ms,
        heartbeat_interval_ms=plan.heartbeat_interval_ms,
        partition_assignment_strategy=(assignors[plan.strategy],),
    )
    diary.generation = lambda: consumer._coordinator.generation
    consumer.subscribe([plan.topic], listener=Listener())
    await consumer.start()
    try:
        while not is_over():
            _note_all(diary, await consumer.getmany(timeout_ms=int(POLL_S * 1_000)))
            async with committing:
                wanted = diary.begin_commit()
                try:
                    await consumer.commit(
                        {TopicPartition(plan.topic, *one[:1]): one[1] for one in wanted.items()}
                    )
                except (KafkaError, ValueError):
                    continue
                diary.end_commit()
    finally:
        await consumer.stop()


def live_ottla(plan: Plan, diary: Diary, is_over: Callable[[], bool]) -> None:
    """Live as a member of our own client."""
    import trio

    trio.run(_live_ottla, plan, diary, is_over)


async def _live_ottla(plan: Plan, diary: Diary, is_over: Callable[[], bool]) -> None:
    import trio

    from ottla.client import ConnectionLostError, RefusedError, TopicPartition, open_consumer
    from ottla.model.settings.client import ConsumerConfig

    config = ConsumerConfig(
        group_id=plan.group,
        group_instance_id=diary.instance,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    protocol, _, assignor = plan.strategy.rpartition(":")
    if protocol:
        config = replace(config, group_protocol=protocol, group_remote_assignor=assignor)
    else:
        config = replace(
            config,
            session_timeout_ms=plan.session_timeout_ms,
            heartbeat_interval_ms=plan.heartbeat_interval_ms,
            partition_assignment_strategy=(plan.strategy,),
        )

    async def on_assigned(given: Iterable[Any]) -> None:
        diary.own(one.partition for one in given)

    async def on_revoked(taken: Iterable[Any]) -> None:
        diary.give(one.partition for one in taken)

    async with open_consumer(plan.bootstrap, config) as consumer:
        group = consumer._member_of()

        def generation() -> int:
            try:
                return group.driver.membership().generation_id
            except RefusedError:  # it is no member now
                return NO_GENERATION

        diary.generation = generation
        consumer.subscribe([plan.topic], on_assigned=on_assigned, on_revoked=on_revoked)
        while not is_over():
            with trio.move_on_after(POLL_S):
                for record in await consumer.poll():
                    diary.read(record.partition, [record.offset])
            wanted = diary.begin_commit()
            try:
                if wanted:
                    await consumer.commit(
                        {TopicPartition(plan.topic, *one[:1]): one[1] for one in wanted.items()}
                    )
            except (RefusedError, ConnectionLostError):
                continue
            diary.end_commit()


def _note_all(diary: Diary, found: Mapping[Any, list[Any]]) -> None:
    for at, records in found.items():
        diary.read(at.partition, [record.offset for record in records])


CLIENTS: dict[str, Callable[[Plan, Diary, Callable[[], bool]], None]] = {
    "confluent-kafka": live_confluent,
    "kafka-python": live_kafka_python,
    "aiokafka": live_aiokafka,
    "ottla": live_ottla,
}


class Household:
    """The members of this process, a thread for each."""

    def __init__(self, plan: Plan, ledger: TextIO) -> None:
        self._plan = plan
        self._ledger = ledger
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._is_settled = threading.Event()
        if plan.is_static:
            self._is_settled.set()
        self._is_rolling = threading.Event()
        self._to_restart: set[int] = set()
        self._joined = [0] * plan.count
        """Which of each member's lives has a generation."""

    def run(self) -> None:
        """Let all of them live until SIGTERM."""
        signal.signal(signal.SIGUSR1, lambda *_: self._is_settled.set())
        signal.signal(signal.SIGUSR2, lambda *_: self._is_rolling.set())
        signal.signal(signal.SIGTERM, lambda *_: self._is_over.set())
        print(BEGUN, flush=True)
        threads = [
            threading.Thread(target=self._come_and_go, args=(number,))
            for number in range(self._plan.count)
        ]
        for thread in threads:
            thread.start()
        while not self._is_over.wait(POLL_S):
            if self._is_rolling.is_set():
                self._is_rolling.clear()
                self._roll()
        for thread in threads:
            thread.join()

    def _roll(self) -> None:
        for number, life in enumerate(self._joined):
            self._to_restart.add(number)
            while self._joined[number] == life and not self._is_over.is_set():
                time.sleep(POLL_S / 4)

    def _come_and_go(self, number: int) -> None:
        plan = self._plan
        rng = random.Random(plan.seed * 1_000 + number)
        life = 0
        while not self._is_over.is_set():
            life += 1
            name = f"{plan.client}-{plan.seed}-{number}/{life}"
            diary = Diary(plan, self._ledger, self._lock, name)
            self._live(number, life, diary, time.monotonic() + rng.uniform(LIFE_S_MIN, plan.life_s))
            if not (plan.is_static or self._is_settled.is_set()):
                self._is_over.wait(rng.uniform(*ABSENCE_S))

    def _live(self, number: int, life: int, diary: Diary, end_s: float) -> None:
        def is_over() -> bool:
            if number in self._to_restart:
                self._to_restart.discard(number)
                return True
            if self._joined[number] != life and diary.generation() != NO_GENERATION:
                self._joined[number] = life
                if life > 1 and self._plan.is_static:
                    diary.rolled()
            has_time = self._is_settled.is_set() or time.monotonic() < end_s
            return self._is_over.is_set() or not has_time

        CLIENTS[self._plan.client](self._plan, diary, is_over)


if __name__ == "__main__":
    wanted = Plan(**json.loads(sys.argv[1]))
    with open(wanted.ledger, "a") as file:
        Household(wanted, file).run()
