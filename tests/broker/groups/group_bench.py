"""The groups of one coordinator partition without a broker: manual time, a list as the log, and
recorded responses.

`commit_log` commits the log, wholly or in part. `fail_over` lets another coordinator replay the
committed records, and as many uncommitted ones as the caller requests.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from ottla.broker.coordinators.effects import CoordinatorRecord, EventWrite, Instant, Responder
from ottla.broker.coordinators.performer import perform
from ottla.broker.groups.consumer.topic_view import TopicView
from ottla.broker.groups.shard import GroupShard
from ottla.broker.groups.share.partition_states import SharePorts
from ottla.jepsen.world.walk.group_requests import Action, GroupRequest, GroupRequests
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import BrokerRegistration, PartitionState, Provenance
from ottla.metadata.records import (
    Record,
    partition_record,
    register_broker_record,
    remove_topic_record,
    topic_record,
)
from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.settings.group_overrides import group_settings_of
from ottla.model.settings.groups import GroupConfig
from tests.broker.groups.share_persister_bench import SharePersisterBench

WALL_MS = 1_700_000_000_000
CONFIG = GroupConfig(initial_rebalance_delay_ms=0)


class GroupBench(GroupRequests):
    """The coordinator of one partition (a shard), and its log. With `is_committing`, every write is
    committed at once."""

    def __init__(self, config: GroupConfig = CONFIG) -> None:
        self.config = config
        self.settings = group_settings_of({}, config)
        self.record_bytes_max = 1 << 20
        self.mono_ms = 1_000
        self.log: list[CoordinatorRecord] = []
        self.ends = [0]
        """For each event, the number of log records at its end. The log may only be cut at one of
        these positions."""
        self.committed_count = 0
        self.is_committing = True
        self.is_working = True
        """True if the shard's pending work, which is done in steps, is completed at once."""
        self.topics = TopicView()
        self.states = SharePersisterBench()
        self._held: list[tuple[int, Responder, Any]] = []
        self._ids = 0
        self._topic_count = 0
        self.shard = self._new_shard()

    def _new_shard(self) -> GroupShard:
        return GroupShard(
            self.config,
            topics=self.topics,
            settings=lambda _: self.settings,
            new_id=self._new_id,
            record_bytes_max=lambda: self.record_bytes_max,
            share_ports=SharePorts(self.states, self._perform_on_shares),
        )

    def _perform_on_shares(
        self, group_id: str, responder: Responder, action: Callable[[Any, Instant], None]
    ) -> None:
        action(self.shard.shares, self.now)
        self.settle()

    def _new_id(self) -> str:
        self._ids += 1
        return str(self._ids)

    @property
    def now(self) -> Instant:
        """The current time of both clocks: monotonic and wall clock."""
        return Instant(self.mono_ms, WALL_MS + self.mono_ms)

    def settle(self) -> None:
        """Handle expired timers, do pending work, and perform the effects, as the broker's driver
        does."""
        while (self.shard.next_deadline_ms() or self.mono_ms + 1) <= self.mono_ms:
            self.shard.on_time(self.now)
        while self.is_working and self.shard.has_work:
            self.shard.work(self.now)
        perform(self.shard.take_effects(), self)
        if self.is_committing:
            self.commit_log()

    def _perform(
        self, group_id: str, asked: GroupRequest, action: Action, *, is_write: bool = False
    ) -> None:
        action(self.shard, self.now)
        self.settle()

    # ---- ports of the performer

    def answer(self, responder: Responder, answer: Any) -> None:
        """Record a response as sent."""
        responder(answer)

    def append(
        self, writes: Sequence[EventWrite], answers: Sequence[tuple[Responder, Any]]
    ) -> None:
        """Append the writes to the list that serves as the log, and hold back the responses until
        `commit_log`."""
        for write in writes:
            self.log += write
            self.ends.append(len(self.log))
        self._held += [(len(self.log), responder, answer) for responder, answer in answers]

    def send(self, order: Any) -> None:
        """Raise an error, because groups send no requests to other brokers."""
        raise AssertionError(order)

    def wake(self, key: str) -> None:
        """Raise an error, because in groups no request waits for a transactional id."""
        raise AssertionError(key)

    def wake_at(self, deadline_ms: int | None) -> None:
        """Do nothing: `settle` and `pass_time` read the shard's deadline."""

    def work_soon(self) -> None:
        """Do nothing: `settle` does the work."""

    # ---- the log

    def commit_log(self, end: int | None = None) -> None:
        """Raise the high watermark to the end of the last event at or before `end`, or to the end
        of the log."""
        reached = len(self.log) if end is None else self._cut_before(end)
        self.committed_count = max(self.committed_count, reached)
        while self._held and self._held[0][0] <= self.committed_count:
            _, responder, answer = self._held.pop(0)
            responder(answer)

    def pass_time(self, elapsed_ms: int) -> None:
        """Advance the time, and handle every deadline on the way."""
        end_ms = self.mono_ms + elapsed_ms
        while (due_ms := self.shard.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.mono_ms = max(self.mono_ms, due_ms)
            self.settle()
        self.mono_ms = end_ms
        self.settle()

    def fail_over(self, kept_count: int) -> None:
        """Replace the coordinator by another one, which replays at most the first `kept_count`
        records of the log."""
        assert self.committed_count <= kept_count <= len(self.log)
        kept_count = self._cut_before(kept_count)
        held, self._held = self._held, []
        for _, responder, _ in held:
            responder(ErrorCode.NOT_COORDINATOR)
        for responder in self.shard.resign():
            responder(ErrorCode.NOT_COORDINATOR)
        del self.log[kept_count:]
        self.ends = [end for end in self.ends if end <= kept_count]
        self.committed_count = kept_count
        self.shard = self.replayed()
        self.shard.resume(self.now)
        self.settle()

    def _cut_before(self, place: int) -> int:
        return max(end for end in self.ends if end <= place)

    def replayed(self) -> GroupShard:
        """Return a new shard that has replayed the log."""
        shard = self._new_shard()
        for key, value in self.log:
            shard.replay(key, value)
        return shard

    # ---- topics

    def make_topic(self, name: str, count: int = 4) -> UUID:
        """Create a topic. Returns its id."""
        self._topic_count += 1
        topic_id = UUID(int=self._topic_count)
        self._change_topics(topic_record(name, topic_id), *_partitions(topic_id, range(count)))
        return topic_id

    def make_topic_on(self, name: str, brokers: Sequence[int]) -> UUID:
        """Create a topic with one replica of each partition, on the broker given for it. Broker 1
        is in rack "r1", and so on. Returns its id."""
        self._topic_count += 1
        topic_id = UUID(int=self._topic_count)
        registered = [
            register_broker_record(
                BrokerRegistration(
                    id=NodeId(each), epoch=1, incarnation_id=UUID(int=each), rack=f"r{each}"
                )
            )
            for each in sorted(set(brokers))
        ]
        partitions = [
            record
            for index, each in enumerate(brokers)
            for record in _partitions(topic_id, [index], NodeId(each))
        ]
        self._change_topics(*registered, topic_record(name, topic_id), *partitions)
        return topic_id

    def move_broker(self, broker: int, rack: str) -> None:
        """Put a broker of `make_topic_on` into another rack."""
        known = self.topics.image.brokers[NodeId(broker)]
        self._change_topics(register_broker_record(replace(known, rack=rack)))

    def move_partition(self, name: str, index: int, broker: int) -> None:
        """Make another broker the only replica of a partition."""
        topic = self.topics.image.topic(name)
        assert topic is not None
        self._change_topics(*_partitions(topic.id, [index], NodeId(broker)))

    def grow_topic(self, name: str, count: int) -> None:
        """Add partitions to a topic."""
        topic = self.topics.image.topic(name)
        assert topic is not None
        self._change_topics(*_partitions(topic.id, range(len(topic.partitions), count)))

    def drop_topic(self, name: str) -> None:
        """Delete a topic."""
        topic = self.topics.image.topic(name)
        assert topic is not None
        self._change_topics(remove_topic_record(topic.id))

    def _change_topics(self, *records: Record) -> None:
        delta = MetadataDelta(self.topics.image)
        for record in records:
            delta.replay(record)
        offset = self.topics.image.provenance.offset + len(records)
        changed = self.topics.follow(delta, delta.apply(Provenance(Offset(offset), Epoch(1))))
        self.shard.on_topics(changed, self.now)
        self.settle()


def _partitions(topic_id: UUID, indexes: Iterable[int], broker: NodeId = NodeId(1)) -> list[Record]:
    state = PartitionState(
        replicas=(broker,), directories=(UUID(int=1),), isr=(broker,), leader=broker
    )
    return [partition_record(topic_id, index, state) for index in indexes]
