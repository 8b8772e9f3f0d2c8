"""Sends requests to the coordinator of one group for random walks, and keeps the responses."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from ottla.broker.coordinators.effects import Instant, MemberClient
from ottla.broker.groups.classic.rebalance import Join
from ottla.broker.groups.consumer.consumer_rebalance import MemberHeartbeat
from ottla.broker.groups.offsets.topic_commit import OffsetTopic, TopicCommit
from ottla.broker.groups.shard import GroupShard
from ottla.broker.groups.share.share_rebalance import ShareHeartbeat
from ottla.model.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group_request import MemberIdentity
from ottla.wire.messages.offset_commit_request import OffsetCommitRequest
from ottla.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from ottla.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment

GROUP = "group"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
TOPIC_ID = UUID(int=77)
COMMITTED_LEADER_EPOCH = 4

Action: TypeAlias = Callable[[GroupShard, Instant], None]
"""Function that handles a request. Its arguments are the shard of the group coordinator and the
time."""


class GroupRequest:
    """One request to a group coordinator, and its response once the coordinator has sent it."""

    __slots__ = ("_answers",)

    def __init__(self) -> None:
        self._answers: list[Any] = []

    def __call__(self, answer: Any) -> None:
        """Record the response to this request, which the coordinator has just sent."""
        assert not self._answers, "AnsweredOnce: a second answer came"
        self._answers.append(answer)

    @property
    def is_answered(self) -> bool:
        """True if the coordinator has sent the response to this request."""
        return bool(self._answers)

    @property
    def answer(self) -> Any:
        """Response of the coordinator to this request."""
        return self._answers[0]

    @property
    def code(self) -> ErrorCode:
        """Top-level error code of the response to this request."""
        answer = self.answer
        return answer if isinstance(answer, ErrorCode) else ErrorCode(answer.error_code)


class GroupRequests(ABC):
    """Base class for senders of requests to the coordinator of one group. Responses arrive at once
    or later."""

    @abstractmethod
    def _perform(
        self, group_id: str, asked: GroupRequest, action: Action, *, is_write: bool = False
    ) -> None:
        """Pass a request to the coordinator of a group, which handles it by `action`. `is_write` is
        True if the request must be refused while an earlier write of the coordinator could not be
        committed."""

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
        """Send a ConsumerGroupHeartbeat. Returns the request, which receives its response later."""
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
        self._perform(
            group_id, asked, lambda shard, now: shard.consumers.handle_heartbeat(heartbeat, now)
        )
        return asked

    def share_heartbeat(
        self,
        member_id: str,
        epoch: int,
        *,
        topics: Sequence[str] | None = None,
        rack_id: str | None = None,
        group_id: str = GROUP,
        client_id: str = "client",
    ) -> GroupRequest:
        """Send a ShareGroupHeartbeat. Returns the request, which receives its response later."""
        asked = GroupRequest()
        request = ShareGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            rack_id=rack_id,
            subscribed_topic_names=None if topics is None else list(topics),
        )
        heartbeat = ShareHeartbeat(request, _client(client_id), asked)
        self._perform(
            group_id, asked, lambda shard, now: shard.shares.handle_heartbeat(heartbeat, now)
        )
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
        """Send a JoinGroup. Returns the request, which receives its response later. In version 3 a
        new member may join without a member id."""
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
        join = Join(request, version, _client(client_id), asked)
        self._perform(group_id, asked, lambda shard, now: shard.join(join, now))
        return asked

    def sync(
        self,
        member_id: str,
        generation_id: int,
        parts: Mapping[str, bytes] | None = None,
        **changes: Any,
    ) -> GroupRequest:
        """Send a SyncGroup. Returns the request, which receives its response later. `parts` are the
        assignments by member id, which the group's leader sends. `changes` are values of other
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
        self._perform(GROUP, asked, lambda shard, now: shard.sync(request, asked, now))
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
        self._perform(GROUP, asked, lambda shard, now: shard.heartbeat(request, asked, now))
        return asked.code

    def leave(self, *members: tuple[str, str | None]) -> GroupRequest:
        """Send a LeaveGroup request. `members` are pairs of member id and instance id. Returns the
        request, which receives its response later."""
        asked = GroupRequest()
        identities = [
            MemberIdentity(member_id=name, group_instance_id=instance) for name, instance in members
        ]
        self._perform(GROUP, asked, lambda shard, now: shard.leave(GROUP, identities, asked, now))
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
        """Send an OffsetCommit of one partition. Returns the request, which receives its response
        later."""
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
        self._perform(
            group_id,
            asked,
            lambda shard, now: shard.commit(request, commits, asked, now, version),
            is_write=True,
        )
        return asked

    def fetch(self, topic: str = "orders", index: int = 0, **member: Any) -> GroupRequest:
        """Send an OffsetFetch of one partition. Returns the request, which receives its
        response later. `member` has the values of the request's fields that describe the
        requesting member."""
        asked = GroupRequest()
        wanted = [(topic, index)]
        self._perform(
            GROUP, asked, lambda shard, now: shard.fetch_offsets(GROUP, wanted, asked, **member)
        )
        return asked

    def delete(self, group_id: str = GROUP) -> GroupRequest:
        """Send a DeleteGroups request for a group. Returns the request, which receives its response
        later."""
        asked = GroupRequest()
        self._delete(group_id, asked)
        return asked

    def _delete(self, group_id: str, asked: GroupRequest) -> None:
        self._perform(
            group_id,
            asked,
            lambda shard, now: shard.delete_group(
                group_id, asked, lambda: self._delete(group_id, asked)
            ),
        )


def _client(client_id: str) -> MemberClient:
    return MemberClient(client_id, "/10.0.0.9")
