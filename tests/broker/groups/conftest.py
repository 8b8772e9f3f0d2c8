"""The groups of one partition without a broker: time by hand, a list for a log, answers kept."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.groups.classic_group import ClassicGroup
from ottla.broker.groups.consumer_group import ConsumerGroup
from ottla.broker.groups.consumer_rebalance import Heartbeat
from ottla.broker.groups.effects import Asker, Client, Instant
from ottla.broker.groups.group_records import GroupRecord
from ottla.broker.groups.offsets import CommittedOffset
from ottla.broker.groups.rebalance import Join
from ottla.broker.groups.shard import GroupShard, TopicCommit
from ottla.broker.groups.topic_view import TopicView
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
    OffsetCommitRequestPartition,
)
from ottla.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment

GROUP = "group"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
TOPIC_ID = UUID(int=77)
WALL_MS = 1_700_000_000_000
CONSUMER_SESSION_MS = 45_000
AT_ONCE = GroupConfig(initial_rebalance_delay_ms=0)


class Asked:
    """One request that was made, and its answer when there is one."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def __call__(self, answer: Any) -> None:
        assert not self.answers, "answered twice"
        self.answers.append(answer)

    @property
    def is_answered(self) -> bool:
        return bool(self.answers)

    @property
    def answer(self) -> Any:
        (answer,) = self.answers
        return answer

    @property
    def code(self) -> ErrorCode:
        """The error of the whole answer."""
        answer = self.answer
        return answer if isinstance(answer, ErrorCode) else ErrorCode(answer.error_code)


class Groups:
    """A shard and its log; `is_committing` says whether what is written is committed at once."""

    def __init__(self, config: GroupConfig = AT_ONCE) -> None:
        self.config = config
        self.mono_ms = 1_000
        self.log: list[GroupRecord] = []
        self.is_committing = True
        self._committed_count = 0
        self._ids = 0
        self._held: list[tuple[Asker, Any]] = []
        self.record_bytes_max = 1 << 20
        self.topics = TopicView()
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
        return Instant(self.mono_ms, WALL_MS + self.mono_ms)

    @property
    def group(self) -> ClassicGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    @property
    def consumers(self) -> ConsumerGroup:
        """The group, which is one of the consumer protocol."""
        group = self.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def settle(self) -> None:
        """Do what a driver does at the end of its turn."""
        while (self.shard.next_deadline_ms or self.mono_ms + 1) <= self.mono_ms:
            self.shard.on_time(self.now)
        effects = self.shard.take_effects()
        self.log += effects.records
        for asker, answer in effects.answers:
            asker(answer)
        self._held += effects.committed_answers
        if self.is_committing:
            self.commit_log()

    def commit_log(self) -> None:
        """Let the high watermark reach the end of the log."""
        self._committed_count = len(self.log)
        held, self._held = self._held, []
        for asker, answer in held:
            asker(answer)

    def pass_time(self, elapsed_ms: int) -> None:
        """Let time pass, stopping at every deadline."""
        end_ms = self.mono_ms + elapsed_ms
        while (due_ms := self.shard.next_deadline_ms) is not None and due_ms <= end_ms:
            self.mono_ms = max(self.mono_ms, due_ms)
            self.settle()
        self.mono_ms = end_ms
        self.settle()

    def restart(self) -> None:
        """Let another leader take over: all it knows is the log, as far as it is committed."""
        held, self._held = self._held, []
        for asker, _ in held:
            asker(ErrorCode.NOT_COORDINATOR)
        for asker, code in self.shard.resign():
            asker(code)
        del self.log[self._committed_count :]
        self.shard = self._new_shard()
        for key, value in self.log:
            self.shard.replay(key, value)
        self.shard.resume(self.now)
        self.settle()

    def check_replay(self) -> None:
        """What the log says of consumer groups is what is in memory."""
        loaded = self._new_shard()
        for key, value in self.log:
            loaded.replay(key, value)
        assert _consumer_groups(loaded) == _consumer_groups(self.shard)

    # ---- topics

    def make_topic(self, name: str, count: int = 4) -> UUID:
        """Create a topic; return its id."""
        self._topic_count += 1
        topic_id = UUID(int=self._topic_count)
        self._change_topics(topic_record(name, topic_id), *_partitions(topic_id, range(count)))
        return topic_id

    def grow_topic(self, name: str, count: int) -> None:
        """Give a topic more partitions."""
        topic = self.topics.image.topic(name)
        assert topic is not None
        self._change_topics(*_partitions(topic.id, range(len(topic.partitions), count)))

    def drop_topic(self, name: str) -> None:
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

    # ---- requests of the consumer protocol

    def beat(
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
    ) -> Asked:
        """Send a ConsumerGroupHeartbeat."""
        asked = Asked()
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
            topic_partitions=None
            if owned is None
            else [
                TopicPartitions(topic_id=topic_id, partitions=list(indexes))
                for topic_id, indexes in owned.items()
            ],
        )
        self.shard.consumer_heartbeat(
            Heartbeat(request, Client(client_id, "/10.0.0.9"), asked), self.now
        )
        self.settle()
        return asked

    def enter(
        self, member_id: str, topics: Sequence[str] | None = ("orders",), **more: Any
    ) -> Asked:
        """Join a consumer group."""
        more.setdefault("rebalance_ms", REBALANCE_MS)
        return self.beat(member_id, 0, owned={}, topics=topics, **more)

    # ---- requests

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
    ) -> Asked:
        """Send a JoinGroup; in version 3 a new member needs no id to join."""
        asked = Asked()
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
        self.shard.join(Join(request, version, Client(client_id, "/10.0.0.9"), asked), self.now)
        self.settle()
        return asked

    def sync(
        self,
        member_id: str,
        generation_id: int,
        parts: dict[str, bytes] | None = None,
        **changes: Any,
    ) -> Asked:
        asked = Asked()
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
        asked = Asked()
        request = HeartbeatRequest(
            group_id=GROUP,
            member_id=member_id,
            generation_id=generation_id,
            group_instance_id=instance_id,
        )
        self.shard.heartbeat(request, asked, self.now)
        self.settle()
        return asked.code

    def leave(self, *members: tuple[str, str | None]) -> list[ErrorCode]:
        asked = Asked()
        identities = [
            MemberIdentity(member_id=name, group_instance_id=instance) for name, instance in members
        ]
        self.shard.leave(GROUP, identities, asked, self.now)
        self.settle()
        codes: list[ErrorCode] = asked.answer
        return codes

    def commit(
        self,
        offset: int = 7,
        *,
        member_id: str = "",
        generation_id: int = -1,
        instance_id: str | None = None,
        topic: str = "orders",
        index: int = 0,
        metadata: str | None = None,
        retention_ms: int = -1,
        version: int = 10,
        group_id: str = GROUP,
    ) -> Asked:
        asked = Asked()
        request = OffsetCommitRequest(
            group_id=group_id,
            member_id=member_id,
            generation_id_or_member_epoch=generation_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
        )
        part = OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=offset,
            committed_leader_epoch=4,
            committed_metadata=metadata,
        )
        commits = [TopicCommit(topic, TOPIC_ID, [part])]
        self.shard.commit(request, commits, asked, self.now, version=version)
        self.settle()
        return asked

    def fetch(self, topic: str = "orders", index: int = 0, **member: Any) -> Asked:
        asked = Asked()
        self.shard.fetch_offsets(GROUP, [(topic, index)], asked, **member)
        self.settle()
        return asked

    def fetched(self, topic: str = "orders", index: int = 0) -> CommittedOffset | None:
        ((_, _, offset),) = self.fetch(topic, index).answer
        found: CommittedOffset | None = offset
        return found

    def delete(self) -> ErrorCode:
        asked = Asked()
        self.shard.delete_group(GROUP, asked)
        self.settle()
        return asked.code

    # ---- whole stories

    def stable(self, *, size: int = 2, **changes: Any) -> list[str]:
        """Bring a group to its first stable generation of `size`; return its ids, leader first."""
        members = [self.join(**changes).answer.member_id]
        for _ in range(size - 1):
            newcomer = self.join(**changes)
            again = [self.join(member, **changes) for member in members]
            members.append(newcomer.answer.member_id)
            assert all(one.is_answered for one in again)
        parts = {member: b"part of %s" % member.encode() for member in members}
        for member in members:
            given = parts if self.group.is_leader(member) else {}
            self.sync(member, self.group.generation_id, given)
        assert self.group.state == "Stable"
        return members


def _partitions(topic_id: UUID, indexes: Iterable[int]) -> list[Record]:
    state = PartitionState(
        replicas=(NodeId(1),), directories=(UUID(int=1),), isr=(NodeId(1),), leader=NodeId(1)
    )
    return [partition_record(topic_id, index, state) for index in indexes]


def _consumer_groups(shard: GroupShard) -> dict[str, Any]:
    return {
        group.group_id: (
            group.group_epoch,
            group.target_epoch,
            group.metadata_hash,
            group.members,
            group.static_members,
            group.targets,
            group.regexes,
            group._owners,
        )
        for group in shard.groups.values()
        if isinstance(group, ConsumerGroup)
    }


def given(answer: Any) -> dict[UUID, set[int]] | None:
    """Return the assignment that a heartbeat's answer has."""
    if answer.assignment is None:
        return None
    return {one.topic_id: set(one.partitions) for one in answer.assignment.topic_partitions}


@pytest.fixture
def groups() -> Groups:
    return Groups()


@pytest.fixture
def make_groups() -> type[Groups]:
    return Groups
