"""The clients of a run with a share group: producers, and members that use the group as a queue.

Members acknowledge the records that they acquire at once, after a while, or only after the end of
the acquisition lock. They accept, release, reject and renew, and describe the group's start
offsets. All operations are checked at the end (`checkers.shares`).
"""

from collections import Counter
from math import ceil
from typing import ClassVar

import trio

from ottla.client.admin import open_admin
from ottla.client.admin_parts.admin_configs import ConfigResource
from ottla.client.consumer import open_consumer
from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.client.share.share_records import PendingAcknowledgement, ShareRecord
from ottla.client.share_consumer import ShareConsumer, open_share_consumer
from ottla.jepsen.checkers.share_reading import ACCEPT, REJECT, RELEASE, RENEW
from ottla.jepsen.history import Json
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.whole.client_events import FINAL, key_of
from ottla.jepsen.world.whole.machine import Machine
from ottla.jepsen.world.whole.workload import (
    MEMBER_PATIENCE_S,
    RETRY_S,
    TROUBLE,
    ClientWorkload,
    ignoring_faults,
)
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ConsumerConfig
from ottla.model.settings.resources import ConfigKind
from ottla.model.settings.share_client import ShareConsumerConfig

LOCK_MS = 3_000
"""Duration in ms of the share group's acquisition lock. It is shorter than most pauses of
processes."""
DELIVERY_COUNT_LIMIT = 25
"""Maximum number of deliveries of a record in the share group. The faults of a run do not use up
this number."""
LETTER_TOPIC = "dlq.letters"
"""Name of the share group's dead letter topic."""
LETTER_CONFIGS = {"errors.deadletterqueue.group.enable": "true"}
GROUP_SETTINGS = {
    "share.auto.offset.reset": "earliest",
    "share.record.lock.duration.ms": str(LOCK_MS),
    "share.delivery.count.limit": str(DELIVERY_COUNT_LIMIT),
    "errors.deadletterqueue.topic.name": LETTER_TOPIC,
}
TYPES = (*(ACCEPT,) * 12, *(RELEASE,) * 3, REJECT, RENEW)
"""Types of acknowledgements that share group members choose from, each as often as its relative
frequency."""
RECORDS_MAX = 6
"""Maximum number of records that a share group member acquires at a time."""
WORK_S_MAX = 0.3
ENDLESS_MS = 3_600_000
LATE_ONE_IN = 16
"""Average number of batches of acquired records per batch that is acknowledged late: about when its
locks expire, or later."""
DESCRIBED_ONE_IN = 12
"""Average number of acquisitions per acquisition that follows a description of the share group's
offsets."""


class ShareWorkload(ClientWorkload):
    """The clients of a simulated run with a share group."""

    group_settings: ClassVar[dict[str, str]] = GROUP_SETTINGS
    work_s_max: float = WORK_S_MAX
    """Longest time in seconds that a share group member works on the records of one poll."""
    counts: Counter[str]
    """Numbers of rare events in the share group, by their names."""
    _ends: dict[TopicPartition, int]

    async def create_topics(self, *, replication_factor: int) -> None:
        """Create the permanent topics, and configure the share group."""
        self.counts = Counter()
        await super().create_topics(replication_factor=replication_factor)
        async with open_admin(self._cluster.bootstrap, timeout_s=30.0) as admin:
            await admin.create_topic(
                LETTER_TOPIC,
                partition_count=1,
                replication_factor=replication_factor,
                configs=LETTER_CONFIGS,
            )
            group = ConfigResource(ConfigKind.GROUP, self.group)
            await admin.alter_configs(group, self.group_settings)

    async def read_all(self, ends: dict[TopicPartition, int]) -> None:
        """Read every partition from its start to its end offset in `ends`, and record the end
        offsets that the share group must reach."""
        await super().read_all(ends)
        self._ends = ends

    async def committed_offsets(self) -> dict[TopicPartition, int]:
        """Return the share group's start offsets. They are checked like the offsets in members'
        descriptions.

        If the start offsets are at the ends of the partitions, all dead letters have been written.
        The dead letters are then read and recorded for the checkers.
        """
        described = await self._describe()
        found = {at: described.get(at) or 0 for at in self.partitions}
        if all(found[at] >= end for at, end in self._ends.items()):
            await self._read_letters()
        return found

    async def _read_letters(self) -> None:
        """Read the dead letter topic, and record the key and offset of each original record."""
        at = TopicPartition(LETTER_TOPIC, 0)
        keys: dict[str, list[Json]] = {}
        begun = self._history.events.begins("letters", {"group": self.group}, extra=FINAL)
        config = ConsumerConfig(auto_offset_reset="earliest", request_timeout_ms=5_000)
        async with open_consumer(self._cluster.bootstrap, config) as consumer:
            consumer.assign([at])
            consumer.seek_to_beginning(at)
            end = (await consumer.end_offsets([at]))[at]
            while await consumer.position(at) < end:
                for record in await consumer.poll(5.0):
                    key, offset = source_of(record)
                    keys.setdefault(key, []).append(offset)
        self.counts["a record becomes a dead letter"] += bool(keys)
        self._history.events.ends(begun, {"group": self.group, "keys": keys})

    async def _take_part(self, machine: Machine, is_stopping: trio.Event) -> None:
        chance = self._chance(machine)
        config = ShareConsumerConfig(
            group_id=self.group,
            fetch_wait_ms_max=chance.pick((100, 500)),
            request_timeout_ms=5_000,
            share_acquire_mode=chance.pick(("record_limit", "batch_optimized")),
            client_id=machine.name,
        )
        while not is_stopping.is_set():
            with ignoring_faults():
                async with open_share_consumer(self._cluster.bootstrap, config) as consumer:
                    consumer.subscribe(self._plan.topics)
                    of_member = {"group": self.group, "member": consumer.member_id}
                    self._history.events.does("join", of_member)
                    await self._process_share(consumer, of_member, chance, is_stopping)
            await trio.sleep(RETRY_S)

    async def _process_share(
        self,
        consumer: ShareConsumer,
        of_member: dict[str, Json],
        chance: Chance,
        is_stopping: trio.Event,
    ) -> None:
        """Acquire and acknowledge records as a share group member until `is_stopping` is set. Half
        of the members send acknowledgements even if the acquisition lock has expired, as other
        clients do."""
        is_careless = chance.below(2) == 1
        while not is_stopping.is_set():
            if chance.below(DESCRIBED_ONE_IN) == 0:
                with ignoring_faults():
                    await self._describe()
            held = await self._take(consumer, of_member, 1 + chance.below(RECORDS_MAX))
            while held:
                if not self.is_quiet:
                    await trio.sleep(self.work_s_max * chance.random())
                    if chance.below(LATE_ONE_IN) == 0:
                        await trio.sleep(LOCK_MS / 1_000 * (0.8 + chance.random()))
                if is_careless:
                    ignore_ends_of_locks(consumer)
                held = await self._settle(held, of_member, chance)

    async def _take(
        self, consumer: ShareConsumer, of_member: dict[str, Json], count_max: int
    ) -> list[ShareRecord]:
        events = self._history.events
        begun = events.begins("take", of_member, extra=FINAL)
        records = await consumer.poll(MEMBER_PATIENCE_S, record_count_max=count_max)
        keys: dict[str, list[Json]] = {}
        for record in records:
            at = TopicPartition(record.topic, record.partition)
            value = record.value or b""
            age_ms = ceil((trio.current_time() - record._acquired.requested_s) * 1_000)
            row = [int(record.offset), value.decode(), record.delivery_count, age_ms]
            row += self._timing(record)
            keys.setdefault(key_of(at), []).append(row)
            self._history.on_read(at, value, record.offset)
            if record.delivery_count > 1:
                self.counts["a record is delivered again"] += 1
        events.ends(begun, {**of_member, "keys": keys})
        return records

    def _timing(self, record: ShareRecord) -> list[Json]:
        """Return the fields of a recorded delivery that describe the record's due time."""
        return []

    async def _settle(
        self, held: list[ShareRecord], of_member: dict[str, Json], chance: Chance
    ) -> list[ShareRecord]:
        """Acknowledge the acquired records in `held`, and record the outcome of each. Returns the
        records whose locks were renewed."""
        events = self._history.events
        kinds = [ACCEPT if self.is_quiet else chance.pick(TYPES) for _ in held]
        keys: dict[str, list[Json]] = {}
        rows: list[list[Json]] = []
        for record, kind in zip(held, kinds, strict=True):
            rows.append([int(record.offset), kind])
            at = TopicPartition(record.topic, record.partition)
            keys.setdefault(key_of(at), []).append(rows[-1])
        begun = events.begins("acknowledge", {**of_member, "keys": keys}, extra=FINAL)
        # The beginning keeps the rows without outcomes.
        done = {key: [[*row, None] for row in each] for key, each in keys.items()}
        outcomes = {(key, row[0]): row for key, each in done.items() for row in each}
        pending: list[tuple[ShareRecord, list[Json], PendingAcknowledgement]] = []
        for record, kind in zip(held, kinds, strict=True):
            row = outcomes[key_of(TopicPartition(record.topic, record.partition)), record.offset]
            if record.is_settled:
                row[2] = False
                self.counts["a lock ends before the acknowledgement"] += 1
            else:
                pending.append((record, row, getattr(record, kind)()))
        renewed: list[ShareRecord] = []
        for record, row, result in pending:
            try:
                await result
                row[2] = True
                self.counts["an acknowledgement is confirmed"] += 1
                self._history.commit_count += 1
            except TROUBLE as error:
                # The client promises that no attempt was written. After other errors one may be.
                if isinstance(error, RefusedError):
                    is_late = error.code is ErrorCode.INVALID_RECORD_STATE
                    row[2] = False if is_late else None
                    self.counts["an acknowledgement is refused"] += is_late
            if row[1] == RENEW and not record.is_settled:
                renewed.append(record)
        events.ends(begun, {**of_member, "keys": done})
        return renewed

    async def _describe(self) -> dict[TopicPartition, int]:
        """Return the share group's start offset in each partition, and record them for the
        checkers."""
        events = self._history.events
        begun = events.begins("start-offsets", {"group": self.group}, extra=FINAL)
        async with open_admin(self._cluster.bootstrap, timeout_s=10.0) as admin:
            try:
                found = await admin.share_group_offsets(self.group)
            except RefusedError as refusal:
                if refusal.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
                found = {}
        starts = {
            at: int(one.start_offset) for at, one in found.items() if one.start_offset is not None
        }
        keys = {key_of(at): [start, found[at].lag] for at, start in starts.items()}
        events.ends(begun, {"group": self.group, "keys": keys})
        return starts


def source_of(letter: ConsumerRecord) -> tuple[str, int]:
    """Return the key and the offset of the record from which a dead letter was made. The key names
    the partition."""
    headers = {name: (value or b"").decode() for name, value in letter.headers}
    topic, partition = headers["__dlq.errors.topic"], int(headers["__dlq.errors.partition"])
    return key_of(TopicPartition(topic, partition)), int(headers["__dlq.errors.offset"])


def ignore_ends_of_locks(consumer: ShareConsumer) -> None:
    """Change a share consumer, so that it sends acknowledgements even after its acquisition locks
    have expired."""
    for link in consumer._links.values():
        link.hand.lock_ms = ENDLESS_MS
