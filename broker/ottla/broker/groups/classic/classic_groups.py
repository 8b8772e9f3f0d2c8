"""Handles requests to groups of the classic protocol in one shard of the group coordinator.
Pure."""

from collections.abc import Iterator, MutableMapping, Sequence
from typing import ClassVar

from ottla.broker.coordinators.effects import CoordinatorRecord, Instant, Outbox, Responder
from ottla.broker.groups.classic.classic_group import (
    CLASSIC,
    ClassicGroup,
    GroupState,
    group_of,
)
from ottla.broker.groups.classic.describe_classic import describe
from ottla.broker.groups.classic.rebalance import Join, Rebalancer, failed_join
from ottla.broker.groups.coordinated_group import CoordinatedGroup
from ottla.broker.groups.group_kind import GroupKind
from ottla.broker.groups.group_records import group_key
from ottla.broker.groups.offsets.commit_rules import (
    check_classic_commit,
    check_classic_transactional_commit,
)
from ottla.broker.groups.timer_names import TimerKind, TimerName
from ottla.model.errors import ErrorCode
from ottla.wire.codec_types import Message
from ottla.wire.messages.describe_groups_response import DescribedGroup
from ottla.wire.messages.group_metadata_key import GroupMetadataKey
from ottla.wire.messages.group_metadata_value import GroupMetadataValue
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.leave_group_request import MemberIdentity
from ottla.wire.messages.offset_commit_request import OffsetCommitRequest
from ottla.wire.messages.sync_group_request import SyncGroupRequest
from ottla.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequest


class ClassicGroups(GroupKind[ClassicGroup]):
    """Classic groups of a coordinator shard. Groups with committed offsets but without members also
    belong to this kind."""

    keys: ClassVar[tuple[type[Message], ...]] = (GroupMetadataKey,)
    type: ClassVar[str] = CLASSIC

    def __init__(
        self, groups: MutableMapping[str, CoordinatedGroup], outbox: Outbox, rebalancer: Rebalancer
    ) -> None:
        super().__init__(groups, outbox)
        self._rebalancer = rebalancer

    # ---- groups

    def make(self, group_id: str) -> ClassicGroup:
        """Create and return a classic group without members. It replaces any existing group with
        the same id."""
        group = ClassicGroup(group_id)
        self._groups[group_id] = group
        return group

    def delete(self, group: ClassicGroup) -> None:
        """Delete an empty classic group and its record."""
        del self._groups[group.group_id]
        self._rebalancer.forget(group)
        group.become(GroupState.DEAD, group.state_timestamp_ms)
        self._outbox.write(CoordinatorRecord(group_key(group.group_id), None))

    def end_for_conversion(self, group: ClassicGroup) -> None:
        """Delete the record of a classic group and make all members rejoin, because a group of
        another kind replaces the classic group."""
        self._rebalancer.release_group(group, ErrorCode.REBALANCE_IN_PROGRESS)
        self._outbox.write(CoordinatorRecord(group_key(group.group_id), None))

    def take_over(self, group: ClassicGroup, now: Instant) -> None:
        """Start to serve a classic group that was converted from another kind."""
        self._groups[group.group_id] = group
        self._rebalancer.take_over(group, now)

    def describe(self, group: ClassicGroup) -> DescribedGroup:
        """Return the DescribeGroups response of a classic group."""
        return describe(group)

    # ---- the log

    def replay(self, key: GroupMetadataKey, value: Message | None) -> None:
        """Apply the record of a classic group from the log. A null value deletes the group."""
        assert value is None or isinstance(value, GroupMetadataValue)
        if value is not None:
            self._groups[key.group] = group_of(key.group, value)
        elif self.find(key.group) is not None:
            del self._groups[key.group]

    def resume(self, group: ClassicGroup, now: Instant) -> int:
        """Start to serve a classic group that was loaded from the log. Returns the number of its
        members."""
        self._rebalancer.resume(group, now)
        return len(group.members)

    # ---- time

    def on_timer(self, group: ClassicGroup, name: TimerName, now: Instant) -> None:
        """Handle an expired deadline of a member's session, or of the group's join or sync
        round."""
        if name.kind is TimerKind.SESSION:
            self._rebalancer.on_session_timer(group, name.member_id, now)
        elif name.kind is TimerKind.JOIN:
            self._rebalancer.on_join_timer(group, now)
        elif name.kind is TimerKind.SYNC:
            self._rebalancer.on_sync_timer(group, now)

    def restart_sessions(self, group: ClassicGroup, now: Instant) -> None:
        """Restart the session timeout of every member of a classic group."""
        self._rebalancer.restart_sessions(group, now)

    def take_waiting(self) -> Iterator[Responder]:
        """Remove and yield the callbacks of JoinGroup and SyncGroup requests that wait for other
        members."""
        for group in self.all():
            for member in group.members.values():
                for responder in (member.join_responder, member.sync_responder):
                    if responder is not None:
                        yield responder
                member.join_responder = member.sync_responder = None

    # ---- requests

    def join_first(self, join: Join, now: Instant) -> None:
        """Handle a JoinGroup request for a group that does not exist. Creates the group if the
        request has no member id."""
        request = join.request
        if request.member_id:
            code = ErrorCode.UNKNOWN_MEMBER_ID
            self._outbox.answer(join.responder, failed_join(code, request.member_id))
            return
        self._rebalancer.join(self.make(request.group_id), join, now)

    def join(self, group: ClassicGroup, join: Join, now: Instant) -> None:
        """Handle a JoinGroup request to an existing classic group."""
        self._rebalancer.join(group, join, now)

    def sync(
        self, group: ClassicGroup, request: SyncGroupRequest, responder: Responder, now: Instant
    ) -> None:
        """Handle a SyncGroup request to a classic group."""
        self._rebalancer.sync(group, request, responder, now)

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest, now: Instant) -> ErrorCode:
        """Handle a Heartbeat request to a classic group. Returns the error code of the response."""
        return self._rebalancer.heartbeat(group, request, now)

    def leave(
        self, group: ClassicGroup, members: Sequence[MemberIdentity], now: Instant
    ) -> list[ErrorCode]:
        """Handle a LeaveGroup request to a classic group. Returns an error code for each member."""
        return self._rebalancer.leave(group, members, now)

    # ---- offsets

    def check_commit(self, group: ClassicGroup, request: OffsetCommitRequest, version: int) -> None:
        """Raise RefusedError if an OffsetCommit request names a member that is not in the group's
        current generation."""
        check_classic_commit(group, request)

    def check_transactional_commit(
        self, group: ClassicGroup, request: TxnOffsetCommitRequest, version: int
    ) -> None:
        """Raise RefusedError if a TxnOffsetCommit request names a member that is not in the group's
        current generation."""
        check_classic_transactional_commit(group, request)

    def keep_alive(self, group: ClassicGroup, member_id: str, now: Instant) -> None:
        """Restart the session timeout of a group member, since it has committed offsets."""
        self._rebalancer.keep_alive(group, member_id, now)
