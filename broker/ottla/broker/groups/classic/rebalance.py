"""Rebalances of classic groups: joining, assignment, heartbeats, leaving. Pure.

A rebalance has two rounds. JoinGroup requests wait until all members have joined, or until the
longest rebalance timeout has passed. All JoinGroup requests are then answered, and the leader's
response lists all members. SyncGroup requests wait for the leader's SyncGroup, which contains the
assignment. The assignment is written to the log, and all SyncGroup requests are answered once it is
committed.

Sources: KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345 (static members), KIP-394 (ids
before joining), KIP-559 (protocol in sync), KIP-814 (skip the assignment).
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.broker.coordinators.effects import (
    CoordinatorRecord,
    Instant,
    MemberClient,
    Outbox,
    Responder,
)
from ottla.broker.coordinators.timers import Timers
from ottla.broker.groups.classic.classic_group import ClassicGroup, GroupState
from ottla.broker.groups.classic.classic_member import ClassicMember, Protocol
from ottla.broker.groups.group_records import group_key, group_value
from ottla.broker.groups.timer_names import NO_MEMBER_ID, TimerKind, TimerName
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.groups import GroupConfig
from ottla.wire.messages.group_metadata_value import GroupMetadataValue
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.join_group_request import JoinGroupRequest
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_request import MemberIdentity
from ottla.wire.messages.sync_group_request import SyncGroupRequest
from ottla.wire.messages.sync_group_response import SyncGroupResponse

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""Maximum time in milliseconds for which a JoinGroup of a new member may wait. A shorter time
removes members during slow rebalances. A longer time keeps members whose clients have stopped or
have joined again under another id."""

ABSENT_WAIT_MS_MIN = 1_000
"""Minimum milliseconds that a rebalance waits for static members if no member has joined. With 0,
the group would rebalance again without a pause."""

ID_REQUIRED_FROM = 4
"""First version of JoinGroup in which a dynamic member must first request a member id, and then
join with this id."""

SKIP_ASSIGNMENT_FROM = 9

EMPTY, PREPARING, COMPLETING, STABLE = (
    GroupState.EMPTY,
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.STABLE,
)


class Join(NamedTuple):
    """JoinGroup request to a classic group, and the client that sent it."""

    request: JoinGroupRequest
    version: int
    client: MemberClient
    responder: Responder

    @property
    def protocols(self) -> tuple[Protocol, ...]:
        """Assignment protocols that the joining member supports, the preferred one first."""
        return tuple(Protocol(one.name, one.metadata) for one in self.request.protocols)

    @property
    def rebalance_timeout_ms(self) -> int:
        """Milliseconds that the member has for joining again after a rebalance begins. Version 0 of
        JoinGroup has no such field; the session timeout is then used."""
        asked_ms = self.request.rebalance_timeout_ms
        return self.request.session_timeout_ms if asked_ms < 0 else asked_ms


class Rebalancer:
    """Performs the state transitions of classic groups. It also answers the JoinGroup and SyncGroup
    requests that wait in the members.

    `new_id` returns a unique text for a new member id.
    """

    def __init__(
        self,
        config: GroupConfig,
        timers: Timers[TimerName],
        outbox: Outbox,
        *,
        new_id: Callable[[], str],
        record_bytes_max: Callable[[], int],
    ) -> None:
        self._config = config
        self._timers = timers
        self._outbox = outbox
        self._new_id = new_id
        self._record_bytes_max = record_bytes_max
        self._initial_delays: dict[str, tuple[int, int]] = {}
        """Groups in their first rebalance. The values are two durations in milliseconds: the
        group's current delay, and the remaining time by which the delay may be extended."""

    # ---- joining

    def join(self, group: ClassicGroup, join: Join, now: Instant) -> None:
        """Add a member to the classic group's next generation. Its JoinGroup request is answered
        when that generation begins."""
        member_id = join.request.member_id
        if sum(len(one.metadata) for one in join.protocols) > self._record_bytes_max():
            # No record can store this id, so the member would only take memory.
            self._refuse_join(join, ErrorCode.UNKNOWN_SERVER_ERROR)
        elif not self._has_room(group, member_id):
            self._remove(group, member_id)
            self._refuse_join(join, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID)
        elif not group.supports(join.request.protocol_type, join.protocols):
            self._refuse_join(join, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif member_id == NO_MEMBER_ID:
            self._join_first_time(group, join, now)
        elif member_id in group.pending_joins and join.request.group_instance_id is None:
            self._add(group, member_id, join, now)
        else:
            self._join_again(group, join, now)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        size_max = self._config.size_max
        if group.state is EMPTY:
            return True
        if group.state is PREPARING:
            member = group.members.get(member_id)
            is_joining = member is not None and member.join_responder is not None
            return is_joining or group.joining_count < size_max
        return member_id in group.members or len(group.members) < size_max

    def _join_first_time(self, group: ClassicGroup, join: Join, now: Instant) -> None:
        instance_id = join.request.group_instance_id
        member_id = f"{join.client.id if instance_id is None else instance_id}-{self._new_id()}"
        if instance_id is not None and instance_id in group.static_members:
            self._replace_static(group, member_id, join, now)
        elif instance_id is None and join.version >= ID_REQUIRED_FROM:
            group.pending_joins.add(member_id)
            session = TimerName(group.group_id, TimerKind.SESSION, member_id)
            self._timers.set(session, now.mono_ms + join.request.session_timeout_ms)
            self._refuse_join(join, ErrorCode.MEMBER_ID_REQUIRED, member_id)
        else:
            self._add(group, member_id, join, now)

    def _add(self, group: ClassicGroup, member_id: str, join: Join, now: Instant) -> None:
        member = ClassicMember(
            member_id,
            join.request.group_instance_id,
            join.client,
            session_timeout_ms=join.request.session_timeout_ms,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            protocol_type=join.request.protocol_type,
            protocols=join.protocols,
        )
        member.is_new = True
        member.join_responder = join.responder
        if group.state is PREPARING and group.previous_state is EMPTY:
            group.has_new_member = True
        group.add(member)
        # The member has no id for heartbeats yet, and its client may have disconnected unnoticed.
        session = TimerName(group.group_id, TimerKind.SESSION, member_id)
        self._timers.set(session, now.mono_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance_or_complete_join(group, now)

    def _join_again(self, group: ClassicGroup, join: Join, now: Instant) -> None:
        request = join.request
        try:
            member = group.find(request.member_id, request.group_instance_id)
        except RefusedError as refusal:
            self._refuse_join(join, refusal.code)
            return
        is_unchanged = member.protocols == join.protocols
        if group.state is COMPLETING and is_unchanged:
            # The member probably did not receive the earlier response.
            self._answer_join(group, member, join.responder)
        elif group.state is STABLE and is_unchanged and not group.is_leader(member.member_id):
            self._answer_join(group, member, join.responder, is_leader=False)
        elif group.state is EMPTY:
            self._refuse_join(join, ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            self._update(member, join)
            self._rebalance_or_complete_join(group, now)

    def _update(self, member: ClassicMember, join: Join) -> None:
        """Update a member's description from its JoinGroup request. If an earlier request of the
        member is waiting, it is answered with REBALANCE_IN_PROGRESS."""
        if member.join_responder is not None:
            self._answer_failed_join(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.protocols = join.protocols
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        member.session_timeout_ms = join.request.session_timeout_ms
        member.join_responder = join.responder

    def _replace_static(
        self, group: ClassicGroup, member_id: str, join: Join, now: Instant
    ) -> None:
        """Fence the old member id of a restarted static member, and continue with the new member
        id.

        A rebalance follows only if the chosen protocol or the assignment in progress would change
        (KIP-345).
        """
        instance_id = join.request.group_instance_id
        assert instance_id is not None
        if group.state is STABLE and self._is_too_large(_value_after(group, member_id, join)):
            self._refuse_join(join, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        old_id, old_leader_id = group.static_members[instance_id], group.leader_id
        member = group.replace_static(instance_id, member_id)
        self._timers.cancel(TimerName(group.group_id, TimerKind.SESSION, old_id))
        self._fence(member, old_id)
        self._update(member, join)
        self._extend_session(group, member, now)
        if group.state is not STABLE or group.chosen_protocol() != group.protocol_name:
            self._rebalance_or_complete_join(group, now)
            return
        member.join_responder = None
        self._outbox.write(_record_of(group))
        response = self._joined(group, member, is_leader=False)
        if join.version >= SKIP_ASSIGNMENT_FROM:
            response = self._joined(group, member, is_leader=group.is_leader(member_id))
            response.skip_assignment = group.is_leader(member_id)
        else:
            # With the old leader's id, the client does not compute an assignment that would be
            # ignored.
            response.leader = old_leader_id or ""
        self._outbox.answer_when_committed(join.responder, response)

    def _fence(self, member: ClassicMember, old_id: str) -> None:
        code = ErrorCode.FENCED_INSTANCE_ID
        if member.join_responder is not None:
            self._outbox.answer(member.join_responder, failed_join(code, old_id))
            member.join_responder = None
        self._answer_failed_sync(member, code)

    # ---- generations

    def _rebalance_or_complete_join(self, group: ClassicGroup, now: Instant) -> None:
        if group.may_rebalance:
            self.begin_rebalance(group, now)
        else:
            self._complete_join_if_ready(group, now)

    def begin_rebalance(self, group: ClassicGroup, now: Instant) -> None:
        """Start a rebalance, in which all members of the classic group must join again."""
        if group.state is COMPLETING:
            for member in group.members.values():
                member.assignment = b""
                if member.sync_responder is not None:
                    self._answer_failed_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
                    self._extend_session(group, member, now)
        self._timers.cancel(TimerName(group.group_id, TimerKind.SYNC))
        is_first = group.state is EMPTY
        group.become(PREPARING, now.wall_ms)
        if not is_first:
            self._wait_for_joins(group, now)
            return
        delay_ms = self._config.initial_rebalance_delay_ms
        group.has_new_member = False
        self._delay_first(group, delay_ms, max(0, group.rebalance_timeout_ms - delay_ms), now)

    def _delay_first(self, group: ClassicGroup, delay_ms: int, left_ms: int, now: Instant) -> None:
        """Delay the first rebalance of an empty classic group, so that its members join together
        (KIP-134)."""
        self._initial_delays[group.group_id] = (delay_ms, left_ms)
        self._timers.set(TimerName(group.group_id, TimerKind.JOIN), now.mono_ms + delay_ms)

    def _wait_for_joins(self, group: ClassicGroup, now: Instant) -> None:
        if group.have_all_joined:
            self._complete_join(group, now)
        else:
            deadline_ms = now.mono_ms + group.rebalance_timeout_ms
            self._timers.set(TimerName(group.group_id, TimerKind.JOIN), deadline_ms)

    def _complete_join_if_ready(self, group: ClassicGroup, now: Instant) -> None:
        """Begin the classic group's next generation if all members have joined."""
        is_delayed = group.group_id in self._initial_delays
        if group.state is PREPARING and not is_delayed and group.have_all_joined:
            self._complete_join(group, now)

    def on_join_timer(self, group: ClassicGroup, now: Instant) -> None:
        """Handle an expired join timer of a group. The timer limits the time in which members may
        join, or delays the first generation of an empty group."""
        delayed = self._initial_delays.pop(group.group_id, None)
        if group.state is not PREPARING:
            return
        if delayed is not None:
            delay_ms, left_ms = delayed
            if group.has_new_member and left_ms > 0:
                group.has_new_member = False
                next_ms = min(self._config.initial_rebalance_delay_ms, left_ms)
                self._delay_first(group, next_ms, max(0, left_ms - delay_ms), now)
                return
        self._complete_join(group, now)

    def _complete_join(self, group: ClassicGroup, now: Instant) -> None:
        """Begin a generation with the members that have joined, and remove all other members from
        the group."""
        self._timers.cancel(TimerName(group.group_id, TimerKind.JOIN))
        self._initial_delays.pop(group.group_id, None)
        for member in list(group.members.values()):
            if member.join_responder is None and member.instance_id is None:
                self._remove(group, member.member_id)
        if group.members and not group.elect_joined_leader():
            # Only static members are left, and none has joined: their session timeouts decide.
            deadline_ms = now.mono_ms + max(ABSENT_WAIT_MS_MIN, group.rebalance_timeout_ms)
            self._timers.set(TimerName(group.group_id, TimerKind.JOIN), deadline_ms)
            return
        group.begin_generation(now.wall_ms)
        if group.state is EMPTY:
            self._outbox.write(_record_of(group))
            return
        for member in group.members.values():
            if member.join_responder is not None:
                self._answer_join(group, member, member.join_responder)
                member.join_responder = None
            self._extend_session(group, member, now)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        deadline_ms = now.mono_ms + group.rebalance_timeout_ms
        self._timers.set(TimerName(group.group_id, TimerKind.SYNC), deadline_ms)

    def on_sync_timer(self, group: ClassicGroup, now: Instant) -> None:
        """Remove the members of a classic group that did not send SyncGroup in time."""
        if group.is_in(COMPLETING, STABLE) and group.pending_syncs:
            for member_id in sorted(group.pending_syncs):
                self._remove(group, member_id)
            self.begin_rebalance(group, now)

    # ---- assignment

    def sync(
        self, group: ClassicGroup, request: SyncGroupRequest, responder: Responder, now: Instant
    ) -> None:
        """Answer the SyncGroup of a classic member. The response, with the partitions assigned to
        the member, is sent when the leader's assignment has arrived."""
        try:
            member = group.find(request.member_id, request.group_instance_id)
            self._check_sync(group, request)
        except RefusedError as refusal:
            self._outbox.answer(responder, refusal.code)
            return
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            self._timers.cancel(TimerName(group.group_id, TimerKind.SYNC))
        if group.state is STABLE:
            self._outbox.answer_when_committed(responder, _synced(group, member))
            self._extend_session(group, member, now)
            return
        self._answer_failed_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.sync_responder = responder
        if group.is_leader(member.member_id):
            self._assign(group, {one.member_id: one.assignment for one in request.assignments}, now)

    def _check_sync(self, group: ClassicGroup, request: SyncGroupRequest) -> None:
        if request.generation_id != group.generation_id:
            raise RefusedError(ErrorCode.ILLEGAL_GENERATION)
        for asked, ours in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol_name),
        ):
            if asked is not None and asked != ours:
                raise RefusedError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is EMPTY:
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state is PREPARING:
            raise RefusedError(ErrorCode.REBALANCE_IN_PROGRESS)

    def _assign(self, group: ClassicGroup, parts: dict[str, bytes], now: Instant) -> None:
        for member in group.members.values():
            member.assignment = parts.get(member.member_id, b"")
        if self._is_too_large(group.as_value()):
            for member in group.members.values():
                self._answer_failed_sync(member, ErrorCode.UNKNOWN_SERVER_ERROR)
            self.begin_rebalance(group, now)
            return
        group.become(STABLE, now.wall_ms)
        self._outbox.write(_record_of(group))
        for member in group.members.values():
            if member.sync_responder is not None:
                self._outbox.answer_when_committed(member.sync_responder, _synced(group, member))
                member.sync_responder = None
                self._extend_session(group, member, now)

    def _is_too_large(self, value: GroupMetadataValue) -> bool:
        """Return True if the record of a classic group would be too large for the log. Such a
        record would block the writes of all groups in the log."""
        return len(group_value(value)) > self._record_bytes_max()

    # ---- heartbeats and leaving

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest, now: Instant) -> ErrorCode:
        """Restart the session timeout of the group member that sent the heartbeat. Returns NONE, or
        the error code that makes the member join again."""
        try:
            member = group.find(request.member_id, request.group_instance_id)
        except RefusedError as refusal:
            return refusal.code
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self._extend_session(group, member, now)
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING else ErrorCode.NONE

    def keep_alive(self, group: ClassicGroup, member_id: str, now: Instant) -> None:
        """Restart the session timeout of a group member, since it has committed offsets."""
        member = group.members.get(member_id)
        if member is not None and group.is_in(STABLE, PREPARING):
            self._extend_session(group, member, now)

    def leave(
        self, group: ClassicGroup, identities: Iterable[MemberIdentity], now: Instant
    ) -> list[ErrorCode]:
        """Remove members from a classic group. Returns an error code for each member. A static
        member may be named only by its group.instance.id."""
        count = len(group.members)
        codes = [self._leave(group, identity) for identity in identities]
        if ErrorCode.NONE in codes:
            self._on_gone(group, now, has_lost_member=len(group.members) < count)
        return codes

    def _leave(self, group: ClassicGroup, identity: MemberIdentity) -> ErrorCode:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if member_id in group.pending_joins:
            self._remove(group, member_id)
            return ErrorCode.NONE
        if member_id == NO_MEMBER_ID and instance_id is not None:
            member_id = group.static_members.get(instance_id, NO_MEMBER_ID)
        try:
            member = group.find(member_id, instance_id)
        except RefusedError as refusal:
            return refusal.code
        self._remove(group, member.member_id)
        return ErrorCode.NONE

    def on_session_timer(self, group: ClassicGroup, member_id: str, now: Instant) -> None:
        """Handle the session timeout of a classic member. A member with a waiting request remains
        in the group, because it cannot send heartbeats."""
        member = group.members.get(member_id)
        if member is None and member_id not in group.pending_joins:
            return
        if member is not None and member.is_waiting and not member.is_new:
            return
        self._remove(group, member_id)
        self._on_gone(group, now, has_lost_member=member is not None)

    def _on_gone(self, group: ClassicGroup, now: Instant, *, has_lost_member: bool) -> None:
        """Start a rebalance after members have left, or complete a rebalance that waited for these
        members.

        Without `has_lost_member`, only member ids were removed whose clients had not joined. These
        ids had no partitions, so no rebalance is needed.
        """
        if not group.is_in(STABLE, COMPLETING):
            self._complete_join_if_ready(group, now)
        elif has_lost_member:
            self.begin_rebalance(group, now)

    def _remove(self, group: ClassicGroup, member_id: str) -> None:
        member = group.remove(member_id)
        self._timers.cancel(TimerName(group.group_id, TimerKind.SESSION, member_id))
        if member is not None:
            # If the client still exists, it may join again as a new member.
            self._answer_failed_join(member, ErrorCode.UNKNOWN_MEMBER_ID)
            self._answer_failed_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)

    def _extend_session(self, group: ClassicGroup, member: ClassicMember, now: Instant) -> None:
        session = TimerName(group.group_id, TimerKind.SESSION, member.member_id)
        self._timers.set(session, now.mono_ms + member.session_timeout_ms)

    def resume(self, group: ClassicGroup, now: Instant) -> None:
        """Start to serve a classic group that was loaded from the log, with new session
        timeouts."""
        self.restart_sessions(group, now)
        if len(group.members) > self._config.size_max:
            self.begin_rebalance(group, now)

    def restart_sessions(self, group: ClassicGroup, now: Instant) -> None:
        """Restart the session timeouts of all members of a classic group. New members that are
        joining are left out, because their deadline is longer."""
        for member in group.members.values():
            if not member.is_new:
                self._extend_session(group, member, now)

    def release_group(self, group: ClassicGroup, code: ErrorCode) -> None:
        """Stop serving a classic group that was upgraded to the consumer protocol: answer its
        waiting requests with `code`, and cancel its timers."""
        for member in group.members.values():
            self._answer_failed_join(member, code)
            self._answer_failed_sync(member, code)
        for kind in (TimerKind.JOIN, TimerKind.SYNC):
            self._timers.cancel(TimerName(group.group_id, kind))
        self._initial_delays.pop(group.group_id, None)
        self.forget(group)

    def take_over(self, group: ClassicGroup, now: Instant) -> None:
        """Start to serve a classic group that was downgraded from the consumer protocol. All
        members join again.

        The group's record contains the next generation, without members yet. If another coordinator
        loads the record before the end of the rebalance, all members also join again.
        """
        value = group.as_value()
        value.generation += 1
        self._outbox.write(CoordinatorRecord(group_key(group.group_id), group_value(value)))
        self.restart_sessions(group, now)
        self.begin_rebalance(group, now)

    def forget(self, group: ClassicGroup) -> None:
        """Cancel the timers of a deleted classic group. A group without members may still have
        timers for member ids whose clients never joined."""
        for member_id in list(group.pending_joins):
            self._remove(group, member_id)

    # ---- responses

    def _answer_join(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        responder: Responder,
        *,
        is_leader: bool | None = None,
    ) -> None:
        if is_leader is None:
            is_leader = group.is_leader(member.member_id)
        self._outbox.answer(responder, self._joined(group, member, is_leader=is_leader))

    def _joined(
        self, group: ClassicGroup, member: ClassicMember, *, is_leader: bool
    ) -> JoinGroupResponse:
        return JoinGroupResponse(
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader_id or "",
            member_id=member.member_id,
            members=group.joined_members() if is_leader else [],
        )

    def _refuse_join(self, join: Join, code: ErrorCode, member_id: str | None = None) -> None:
        named = join.request.member_id if member_id is None else member_id
        self._outbox.answer(join.responder, failed_join(code, named))

    def _answer_failed_join(self, member: ClassicMember, code: ErrorCode) -> None:
        if member.join_responder is not None:
            # The id is unknown to the group, so it is not returned. The client then joins as a new
            # member.
            named = NO_MEMBER_ID if code is ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
            self._outbox.answer(member.join_responder, failed_join(code, named))
            member.join_responder = None

    def _answer_failed_sync(self, member: ClassicMember, code: ErrorCode) -> None:
        if member.sync_responder is not None:
            self._outbox.answer(member.sync_responder, code)
            member.sync_responder = None


def failed_join(code: ErrorCode, member_id: str) -> JoinGroupResponse:
    """Return the JoinGroup response with an error code."""
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=None)


def _synced(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def _value_after(group: ClassicGroup, member_id: str, join: Join) -> GroupMetadataValue:
    """Return the record value of a classic group after a static member has joined under a new
    member id."""
    value = group.as_value()
    for member in value.members:
        if member.group_instance_id == join.request.group_instance_id:
            if value.leader == member.member_id:
                value.leader = member_id
            member.member_id = member_id
            for protocol in join.protocols:
                if protocol.name == group.protocol_name:
                    member.subscription = protocol.metadata
    return value


def _record_of(group: ClassicGroup) -> CoordinatorRecord:
    return CoordinatorRecord(group_key(group.group_id), group_value(group.as_value()))
