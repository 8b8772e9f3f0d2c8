"""The groups of one coordinator partition without a broker: manual time, a list as the log, and
recorded responses.

`commit_log` commits the log, wholly or in part. `fail_over` lets another coordinator replay the
committed records, and as many uncommitted ones as the caller requests.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from ottla.broker.coordinators.effects import (
    CoordinatorRecord,
    EventWrite,
    Instant,
    MemberClient,
    Responder,
)
from ottla.broker.coordinators.performer import perform
from ottla.broker.groups.classic.rebalance import Join
from ottla.broker.groups.consumer.consumer_rebalance import MemberHeartbeat
from ottla.broker.groups.consumer.topic_view import TopicView
from ottla.broker.groups.offsets.topic_commit import OffsetTopic, TopicCommit
from ottla.broker.groups.shard import GroupShard
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import PartitionState, Provenance
from ottla.metadata.records import (
    Record,
    partition_record,
    remove_topic_record,
    topic_record,
)
from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.settings.group_overrides import GroupSettings
from ottla.model.settings.groups import GroupConfig
from ottla.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group_request import MemberIdentity
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
)
from ottla.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment

GROUP = "group"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
WALL_MS = 1_700_000_000_000
TOPIC_ID = UUID(int=77)
COMMITTED_LEADER_EPOCH = 4
CONFIG = GroupConfig(initial_rebalance_delay_ms=0)


class GroupRequest:
    """One request, and its response once it has been sent."""

    __slots__ = ("_answers",)

    def __init__(self) -> None:
        self._answers: list[Any] = []

    def __call__(self, answer: Any) -> None:
        """Record the response."""
        assert not self._answers, "AnsweredOnce: a second answer came"
        self._answers.append(answer)

    @property
    def is_answered(self) -> bool:
        """Return whether the response has been sent."""
        return bool(self._answers)

    @property
    def answer(self) -> Any:
        """Return the response."""
        return self._answers[0]

    @property
    def code(self) -> ErrorCode:
        """Top-level error code of the response."""
        answer = self.answer
        return answer if isinstance(answer, ErrorCode) else ErrorCode(answer.error_code)


class GroupBench:
    """The coordinator of one partition (a shard), and its log. With `is_committing`, every write is
    committed at once."""

    def __init__(self, config: GroupConfig = CONFIG) -> None:
        self.config = config
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
        self._held: list[tuple[int, Responder, Any]] = []
        self._ids = 0
        self._topic_count = 0
        self.shard = self._new_shard()

    def _new_shard(self) -> GroupShard:
        return GroupShard(
            self.config,
            topics=self.topics,
            settings=lambda _: GroupSettings(),
            new_id=self._new_id,
            record_bytes_max=lambda: self.record_bytes_max,
        )

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
        while (self.shard.next_deadline_ms or self.mono_ms + 1) <= self.mono_ms:
            self.shard.on_time(self.now)
        while self.is_working and self.shard.has_work:
            self.shard.work(self.now)
        perform(self.shard.take_effects(), self)
        if self.is_committing:
            self.commit_log()

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
        while (due_ms := self.shard.next_deadline_ms) is not None and due_ms <= end_ms:
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

    # ---- requests

    def consumer_heartbeat(
        self,
        member_id: str,
        epoch: int,
        *,
        owned: Mapping[UUID, Iterable[int]] | None = None,
        topics: Sequence[str] | None = None,
        regex: str | None = None,
        instance_id: str | None = None,
        rack_id: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = -1,
        group_id: str = GROUP,
        client_id: str = "client",
    ) -> GroupRequest:
        """Send a ConsumerGroupHeartbeat."""
        asked = GroupRequest()
        parts = None
        if owned is not None:
            parts = [TopicPartitions(topic_id=t, partitions=list(owned[t])) for t in owned]
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance_id,
            rack_id=rack_id,
            rebalance_timeout_ms=rebalance_ms,
            subscribed_topic_names=None if topics is None else list(topics),
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=parts,
        )
        heartbeat = MemberHeartbeat(request, _client(client_id), asked)
        self.shard.consumers.handle_heartbeat(heartbeat, self.now)
        self.settle()
        return asked

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", b"topics"),),
        protocol_type: str = "consumer",
        version: int = 3,
        group_id: str = GROUP,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        client_id: str = "client",
    ) -> GroupRequest:
        """Send a JoinGroup. In version 3 a new member may join without a member id."""
        asked = GroupRequest()
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols
            ],
        )
        self.shard.join(Join(request, version, _client(client_id), asked), self.now)
        self.settle()
        return asked

    def sync(
        self,
        member_id: str,
        generation_id: int,
        parts: Mapping[str, bytes] | None = None,
        **changes: Any,
    ) -> GroupRequest:
        """Send a SyncGroup, and return the request with its later response. `changes` are other
        fields of the request."""
        asked = GroupRequest()
        request = SyncGroupRequest(
            group_id=GROUP,
            member_id=member_id,
            generation_id=generation_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=part)
                for name, part in (parts or {}).items()
            ],
            **changes,
        )
        self.shard.sync(request, asked, self.now)
        self.settle()
        return asked

    def heartbeat(
        self, member_id: str, generation_id: int, instance_id: str | None = None
    ) -> ErrorCode:
        """Send a Heartbeat of the classic protocol, and return the error code of the response."""
        asked = GroupRequest()
        request = HeartbeatRequest(
            group_id=GROUP,
            member_id=member_id,
            generation_id=generation_id,
            group_instance_id=instance_id,
        )
        self.shard.heartbeat(request, asked, self.now)
        self.settle()
        return asked.code

    def leave(self, *members: tuple[str, str | None]) -> GroupRequest:
        """Send a LeaveGroup for members given by (id, instance id). Returns the request with its
        later response."""
        asked = GroupRequest()
        identities = [
            MemberIdentity(member_id=name, group_instance_id=instance) for name, instance in members
        ]
        self.shard.leave(GROUP, identities, asked, self.now)
        self.settle()
        return asked

    def commit(
        self,
        offset: int = 7,
        *,
        member_id: str = "",
        generation_id: int = -1,
        instance_id: str | None = None,
        topic: str = "orders",
        topic_id: UUID = TOPIC_ID,
        index: int = 0,
        metadata: str | None = None,
        retention_ms: int = -1,
        version: int = 10,
        group_id: str = GROUP,
    ) -> GroupRequest:
        """Send an OffsetCommit of one partition."""
        asked = GroupRequest()
        request = OffsetCommitRequest(
            group_id=group_id,
            member_id=member_id,
            generation_id_or_member_epoch=generation_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
        )
        row = index, offset, COMMITTED_LEADER_EPOCH, metadata or ""
        commits = [TopicCommit(OffsetTopic(group_id, topic, topic_id), [row])]
        self.shard.commit(request, commits, asked, self.now, version)
        self.settle()
        return asked

    def fetch(self, topic: str = "orders", index: int = 0, **member: Any) -> GroupRequest:
        """Send an OffsetFetch of one partition, and return the request with its later response.
        `member` has the requesting member's fields."""
        asked = GroupRequest()
        self.shard.fetch_offsets(GROUP, [(topic, index)], asked, **member)
        self.settle()
        return asked

    def delete(self) -> GroupRequest:
        """Send a DeleteGroups request for the group, and return it with its later response."""
        asked = GroupRequest()
        self.shard.delete_group(GROUP, asked)
        self.settle()
        return asked


def _client(client_id: str) -> MemberClient:
    return MemberClient(client_id, "/10.0.0.9")


def _partitions(topic_id: UUID, indexes: Iterable[int]) -> list[Record]:
    state = PartitionState(
        replicas=(NodeId(1),), directories=(UUID(int=1),), isr=(NodeId(1),), leader=NodeId(1)
    )
    return [partition_record(topic_id, index, state) for index in indexes]
