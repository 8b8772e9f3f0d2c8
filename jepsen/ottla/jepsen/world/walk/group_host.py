"""A broker core that coordinates groups, with manual time and a log on a simulated disk.

The core is the one that ships. Its host has no tasks: `settle` does the background work of a
broker's drivers. The broker leads the only partition of `__consumer_offsets`. A second replica is
in sync, and its fetches commit the log. `commit_log` simulates such a fetch. `fail_over` moves the
leadership away and back, after the loss of uncommitted records.
"""

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from ottla.broker.broker_core import BrokerCore, CoordinatorPorts
from ottla.broker.groups.consumer.topic_view import TopicView
from ottla.broker.groups.group_figures import LedGroups
from ottla.broker.groups.shard import GroupShard
from ottla.broker.replicas.partition import Partition
from ottla.jepsen.in_memory_controller import CountingRng
from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.noted_errors import NotedErrors
from ottla.jepsen.world.rng import SeededRng
from ottla.jepsen.world.walk.group_requests import Action, GroupRequest, GroupRequests
from ottla.jepsen.world.walk.one_disk import SequentialIds, ports_on
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage, PartitionState, Provenance
from ottla.metadata.records import Record, partition_record, remove_topic_record, topic_record
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.internal_topics import OFFSETS_TOPIC
from ottla.model.run_now import run_now
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.groups import GroupConfig
from ottla.node.network.dispatch import Dispatcher
from ottla.storage.log.log import Log

WALL_MS = 1_700_000_000_000
START_MS = 1_000
LOCAL, OTHER = NodeId(1), NodeId(2)
OTHERS_EPOCH = 1
"""Broker epoch of the second replica, whose fetches commit the coordinator's log."""
OFFSETS_TOPIC_ID = UUID(int=1 << 64)
LED_HERE = PartitionState(
    replicas=(LOCAL, OTHER),
    directories=(UUID(int=1), UUID(int=2)),
    isr=(LOCAL, OTHER),
    leader=LOCAL,
)
LED_ELSEWHERE = PartitionState(
    replicas=(OTHER,), directories=(UUID(int=2),), isr=(OTHER,), leader=OTHER
)


class ManualClock:
    """Clock whose time advances only when the host of the broker core advances it."""

    def __init__(self) -> None:
        self.mono_ms = START_MS

    def monotonic_ms(self) -> int:
        """Return the monotonic time in ms, as the host has set it."""
        return self.mono_ms

    def wall_ms(self) -> int:
        """Return the wall-clock time in ms, as the host has set it."""
        return WALL_MS + self.mono_ms


class GroupHost(GroupRequests):
    """A broker core that coordinates all groups. With `is_committing`, every write is committed at
    once."""

    def __init__(self, commit_timeout_ms: int) -> None:
        """Create a broker with an empty log. `commit_timeout_ms` is `offsets.commit.timeout.ms`,
        the time in ms that a response waits for its records to be committed."""
        self.is_committing = True
        self.ends = [0]
        """End offsets of the coordinator's log after each append. The log is truncated only to one
        of them."""
        self._clock = ManualClock()
        self._faults: list[BaseException] = []
        self._image: MetadataImage = EMPTY
        self._topic_count = 0
        self._state = LED_HERE
        groups = GroupConfig(
            initial_rebalance_delay_ms=0, offsets_commit_timeout_ms=commit_timeout_ms
        )
        config = BrokerConfig(node_id=LOCAL, groups=groups)
        dispatcher = Dispatcher(errors=NotedErrors(self._faults.append))
        self._core = BrokerCore(config, clock=self._clock, rng=CountingRng(), dispatcher=dispatcher)
        self._core.open_replicas(ports_on(SimulatedDisk(SeededRng(1)), self._clock.wall_ms))
        self._core.open_coordinators(
            CoordinatorPorts(
                producer_ids=SequentialIds(),
                send_markers=lambda order: None,
                cancel_markers=lambda state_partition: None,
            )
        )
        self._groups = self._core.groups
        self._change(topic_record(OFFSETS_TOPIC, OFFSETS_TOPIC_ID), self._offsets_partition())

    @property
    def mono_ms(self) -> int:
        """Monotonic time of the host's manual clock in ms."""
        return self._clock.mono_ms

    @property
    def topics(self) -> TopicView:
        """View of the topics that the group coordinator uses."""
        return self._groups._topics

    @property
    def shard(self) -> GroupShard:
        """Active group coordinator shard of the only `__consumer_offsets` partition."""
        (shard,) = self._groups.shards()
        return shard

    @property
    def _partition(self) -> Partition:
        return self._core.table.by_id[OFFSETS_TOPIC_ID][0]

    @property
    def _log(self) -> Log:
        log = self._partition.log
        assert log is not None
        return log

    @property
    def end_offset(self) -> int:
        """Number of records in the log of the `__consumer_offsets` partition."""
        return self._log.end_offset

    @property
    def committed_count(self) -> int:
        """Number of committed records in the log of the `__consumer_offsets` partition."""
        return self._partition.high_watermark

    # ---- the work of a broker's drivers

    def settle(self) -> None:
        """Perform all pending work of the group coordinator: load its shards, handle expired
        deadlines, and append its records. Raises the first unexpected error."""
        groups, now_ms = self._groups, self.mono_ms
        for led in groups.take_loads():
            self._load(led)
        self._core.purgatory.expire(now_ms)
        while (due_ms := groups.next_deadline_ms()) is not None and due_ms <= now_ms:
            groups.on_time(now_ms)
        for _ in groups.work():
            pass
        groups.flush_due()
        if self._log.end_offset > self.ends[-1]:
            self.ends.append(self._log.end_offset)
        if self.is_committing:
            self.commit_log()
        if self._faults:
            raise self._faults[0]

    def _load(self, led: LedGroups) -> None:
        self._replay_into(led.shard)
        for _ in self._groups.resume(led):
            pass
        self._groups.activate(led)

    def _replay_into(self, shard: GroupShard) -> None:
        replay = self._groups.replay_of(self._log, shard)
        while not replay.is_done:
            run_now(replay.replay_part())

    def pass_time(self, elapsed_ms: int) -> None:
        """Advance the host's clock by `elapsed_ms`, and handle every deadline that passes."""
        end_ms = self.mono_ms + elapsed_ms
        while (due_ms := self._next_deadline_ms()) is not None and due_ms <= end_ms:
            self._clock.mono_ms = max(self.mono_ms, due_ms)
            self.settle()
        self._clock.mono_ms = end_ms
        self.settle()

    def _next_deadline_ms(self) -> int | None:
        deadlines = (self._groups.next_deadline_ms(), self._core.purgatory.next_deadline_ms)
        return min((each for each in deadlines if each is not None), default=None)

    def _perform(
        self, group_id: str, asked: GroupRequest, action: Action, *, is_write: bool = False
    ) -> None:
        self._groups.perform(group_id, asked, action, is_write=is_write)
        self.settle()

    # ---- the log

    def commit_log(self, end: int | None = None) -> None:
        """Simulate a fetch of the second replica, which commits the coordinator's log.

        The fetch includes all appends that end at or before `end`, or the whole log if `end` is
        None.
        """
        reached = self._log.end_offset if end is None else self._cut_before(end)
        if reached > self.committed_count:
            self._partition.on_follower_fetch(
                OTHER,
                end_offset=Offset(reached),
                log_start_offset=Offset(0),
                broker_epoch=OTHERS_EPOCH,
                now_ms=self.mono_ms,
            )

    def fail_over(self, kept_count: int) -> None:
        """Replace the group coordinator by another one, which loads at most the first `kept_count`
        records of the log."""
        kept = self._cut_before(kept_count)
        self._lead(OTHER)
        run_now(self._log.truncate_to(Offset(kept)))
        self.ends = [end for end in self.ends if end <= kept]
        self._lead(LOCAL)

    def _lead(self, leader: NodeId) -> None:
        state = self._state
        self._state = replace(
            state,
            leader=leader,
            leader_epoch=Epoch(state.leader_epoch + 1),
            partition_epoch=state.partition_epoch + 1,
        )
        self._change(self._offsets_partition())

    def _offsets_partition(self) -> Record:
        return partition_record(OFFSETS_TOPIC_ID, 0, self._state)

    def _cut_before(self, offset: int) -> int:
        return max(end for end in self.ends if end <= offset)

    def replayed(self) -> GroupShard:
        """Return a new coordinator shard that has replayed the log of the `__consumer_offsets`
        partition."""
        shard = self._groups._new_shard(self._partition)
        self._replay_into(shard)
        return shard

    # ---- topics

    def make_topic(self, name: str, count: int) -> UUID:
        """Create a topic with `count` partitions. Returns its id."""
        self._topic_count += 1
        topic_id = UUID(int=self._topic_count)
        self._change(topic_record(name, topic_id), *_partitions(topic_id, range(count)))
        return topic_id

    def grow_topic(self, name: str, count: int) -> None:
        """Increase the number of partitions of a topic to `count`."""
        topic = self._image.topic(name)
        assert topic is not None
        self._change(*_partitions(topic.id, range(len(topic.partitions), count)))

    def drop_topic(self, name: str) -> None:
        """Delete a topic from the metadata of the broker core."""
        topic = self._image.topic(name)
        assert topic is not None
        self._change(remove_topic_record(topic.id))

    def _change(self, *records: Record) -> None:
        """Publish a change of the metadata to the components of the broker, in the order that a
        broker uses."""
        delta = MetadataDelta(self._image)
        for record in records:
            delta.replay(record)
        offset = Offset(self._image.provenance.offset + len(records))
        self._image = image = delta.apply(Provenance(offset, Epoch(1)))
        core = self._core
        for publisher in (core.metadata, core.replicas, *core.coordinators):
            run_now(publisher.publish(delta, image))
        if self._state.leader == LOCAL:
            self.settle()


def _partitions(topic_id: UUID, indexes: Iterable[int]) -> list[Record]:
    return [partition_record(topic_id, index, LED_ELSEWHERE) for index in indexes]
