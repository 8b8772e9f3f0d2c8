"""Handles members of the classic protocol in a consumer group, and converts groups between both
protocols (online upgrade and downgrade). Pure.

When the first member of the consumer protocol joins a classic group of consumers, the group becomes
a consumer group. Its members stay, with their partitions. Members of the classic protocol join,
sync, send heartbeats and leave as before. However, no member is the leader, the generation of a
member is its epoch, and the coordinator reads the subscriptions in the members' metadata. When the
last member of the consumer protocol leaves, the group becomes a classic group.
`group.consumer.migration.policy` permits either direction.
"""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace

from ottla.broker.coordinators.effects import Instant, Outbox, Responder
from ottla.broker.coordinators.timers import Timers
from ottla.broker.groups.classic.classic_group import CONSUMER_PROTOCOL, ClassicGroup, GroupState
from ottla.broker.groups.classic.classic_member import ClassicMember, Protocol
from ottla.broker.groups.classic.rebalance import ID_REQUIRED_FROM, Join, failed_join
from ottla.broker.groups.consumer.consumer_changes import ConsumerChanges
from ottla.broker.groups.consumer.consumer_group import NO_OWNER, ConsumerGroup
from ottla.broker.groups.consumer.consumer_member import (
    ClassicMemberState,
    ConsumerMember,
    MemberState,
)
from ottla.broker.groups.consumer.consumer_rebalance import ConsumerRebalancer
from ottla.broker.groups.consumer.embedded_protocol import (
    EmbeddedSubscription,
    assignment_bytes,
    read_assignment,
    read_subscription,
)
from ottla.broker.groups.consumer.topic_view import TopicView
from ottla.broker.groups.timer_names import TimerKind, TimerName
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.groups import GroupConfig
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_request import MemberIdentity
from ottla.wire.messages.sync_group_request import SyncGroupRequest
from ottla.wire.messages.sync_group_response import SyncGroupResponse

UPGRADING, DOWNGRADING = ("bidirectional", "upgrade"), ("bidirectional", "downgrade")
"""Values of `group.consumer.migration.policy` that permit an upgrade, and values that permit a
downgrade."""


class MixedGroups:
    """Handles requests of the classic protocol to consumer groups. The object has no state."""

    def __init__(
        self,
        config: GroupConfig,
        timers: Timers[TimerName],
        outbox: Outbox,
        changes: ConsumerChanges,
        consumers: ConsumerRebalancer,
        topics: TopicView,
        *,
        new_id: Callable[[], str],
    ) -> None:
        self._config = config
        self._timers = timers
        self._outbox = outbox
        self._changes = changes
        self._consumers = consumers
        self._topics = topics
        self._new_id = new_id

    # ---- upgrade and downgrade

    def may_upgrade(self, group: ClassicGroup) -> bool:
        """Return True if a classic group may become a consumer group with all of its members."""
        return (
            self._config.consumer_migration_policy in UPGRADING
            and group.protocol_type == CONSUMER_PROTOCOL
            and len(group.members) <= self._config.consumer_size_max
            and all(read_subscription(_metadata(group, one)) for one in group.members.values())
            and self._can_be_written(group)
        )

    def _can_be_written(self, group: ClassicGroup) -> bool:
        """Return True if the description of each member of a classic group fits into a record of a
        consumer group."""
        made = ConsumerGroup(group.group_id)
        return all(
            self._changes.fits(made, self._upgraded_member(group, one))
            for one in group.members.values()
        )

    def upgraded(self, group: ClassicGroup) -> ConsumerGroup:
        """Convert a classic group into a consumer group, write its records, and return it."""
        made = ConsumerGroup(group.group_id)
        made.group_epoch = group.generation_id - 1
        members = [self._upgraded_member(group, one) for one in group.members.values()]
        for member in members:
            self._changes.describe(made, member)
        self._changes.raise_epoch(made, 0)
        for member in members:
            self._changes.set_target(made, member.member_id, member.assigned)
        self._changes.finish_target(made, made.group_epoch)
        for member in members:
            self._changes.place(made, member)
        return made

    def _upgraded_member(self, group: ClassicGroup, old: ClassicMember) -> ConsumerMember:
        subscription = read_subscription(_metadata(group, old))
        assert subscription is not None
        return ConsumerMember(
            member_id=old.member_id,
            instance_id=old.instance_id,
            rack_id=subscription.rack_id,
            client=old.client,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            subscribed_names=subscription.topics,
            classic=ClassicMemberState(
                old.session_timeout_ms, tuple((one.name, one.metadata) for one in old.protocols)
            ),
            member_epoch=group.generation_id,
            previous_member_epoch=group.generation_id,
            assigned=read_assignment(old.assignment, self._topics),
        )

    def may_downgrade(self, group: ConsumerGroup, leaving: Set[str] = frozenset()) -> bool:
        """Return True if all members of a consumer group use the classic protocol after the members
        in `leaving` have left."""
        staying_count = len(group.members) - len(leaving & group.members.keys())
        return (
            0 < staying_count <= self._config.size_max
            and self._config.consumer_migration_policy in DOWNGRADING
            # Usually the first member uses the consumer protocol, so this is the cheapest check.
            and all(
                one.classic is not None or one.member_id in leaving
                for one in group.members.values()
            )
        )

    def downgraded(self, group: ConsumerGroup, leaving: Set[str], now: Instant) -> ClassicGroup:
        """Convert a consumer group into a classic group without the members in `leaving`, and
        delete the consumer group's records. Returns the classic group."""
        made = ClassicGroup(group.group_id)
        made.generation_id = group.group_epoch
        made.state, made.state_timestamp_ms = GroupState.STABLE, now.wall_ms
        for member in list(group.members.values()):
            if member.member_id not in leaving:
                made.add(self._downgraded_member(member))
            self._consumers.cancel_timers(group, member.member_id)
            self._changes.remove(group, member.member_id)
        made.protocol_name = made.chosen_protocol()
        self._changes.delete(group)
        return made

    def _downgraded_member(self, member: ConsumerMember) -> ClassicMember:
        classic = member.classic
        assert classic is not None
        # The current partitions, not the target: the group may be upgraded before all members join.
        has = dict(member.assigned)
        for topic_id, indexes in member.pending_revocation.items():
            has[topic_id] = has.get(topic_id, frozenset()) | indexes
        return ClassicMember(
            member.member_id,
            member.instance_id,
            member.client,
            session_timeout_ms=classic.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            protocol_type=CONSUMER_PROTOCOL,
            protocols=classic.protocols,
            assignment=assignment_bytes(has, classic.protocols[0][1], self._topics),
        )

    # ---- requests of members of the classic protocol

    def join(self, group: ConsumerGroup, join: Join, now: Instant) -> None:
        """Handle a classic member's JoinGroup request to a consumer group. The request is answered
        without waiting for other members."""
        request = join.request
        try:
            subscription = self._subscription_of(group, join)
            if not request.member_id and (
                request.group_instance_id is None and join.version >= ID_REQUIRED_FROM
            ):
                member_id = f"{join.client.id}-{self._new_id()}"
                answer = failed_join(ErrorCode.MEMBER_ID_REQUIRED, member_id)
                self._outbox.answer(join.responder, answer)
                return
            member, replaced = self._find_or_make(group, join)
            described = replace(
                member,
                instance_id=request.group_instance_id or member.instance_id,
                rack_id=subscription.rack_id or member.rack_id,
                client=join.client,
                rebalance_timeout_ms=join.rebalance_timeout_ms,
                subscribed_names=subscription.topics,
                subscribed_regex="",
                classic=ClassicMemberState(request.session_timeout_ms, join.protocols),
            )
            self._changes.check(group, described)
            if replaced is not None:
                self._changes.check(group, member)
        except RefusedError as refusal:
            self._outbox.answer(join.responder, failed_join(refusal.code, request.member_id))
            return
        if replaced is not None:
            self._consumers.replace_static(group, replaced, member)
        owned = subscription.owned_ids(self._topics)
        moved = self._consumers.advance(group, member, described, owned, now)
        self._timers.cancel(self._timer(group, moved, TimerKind.JOIN))
        self._consumers.extend_session(group, moved, now)
        sync = self._timer(group, moved, TimerKind.SYNC)
        self._timers.set(sync, now.mono_ms + moved.rebalance_timeout_ms)
        response = JoinGroupResponse(
            generation_id=moved.member_epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=join.protocols[0].name,
            member_id=moved.member_id,
        )
        self._outbox.answer_when_committed(join.responder, response)

    def _subscription_of(self, group: ConsumerGroup, join: Join) -> EmbeddedSubscription:
        """Return the consumer's subscription in a JoinGroup request. Raises RefusedError if the
        request has another protocol type."""
        request = join.request
        if request.member_id not in group.members:
            self._consumers.check_room(len(group.members))
        found = None
        if request.protocol_type == CONSUMER_PROTOCOL and _have_common(group, join.protocols):
            found = read_subscription(join.protocols[0].metadata)
        if found is None:
            raise RefusedError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return found

    def _find_or_make(
        self, group: ConsumerGroup, join: Join
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """Return the member before its JoinGroup request, and the static member that it replaces.
        The second value is None if no member is replaced."""
        request = join.request
        instance_id, member_id = request.group_instance_id, request.member_id
        known_id = None if instance_id is None else group.static_members.get(instance_id)
        if instance_id is not None and member_id:
            return self._consumers.find_static(group, instance_id, member_id), None
        member_id = member_id or f"{instance_id or join.client.id}-{self._new_id()}"
        if known_id is None:
            return group.members.get(member_id) or ConsumerMember(member_id=member_id), None
        # The client was restarted, so its old id is removed.
        known = group.members[known_id]
        again = replace(known, member_id=member_id, member_epoch=0, previous_member_epoch=0)
        return again, known

    def sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, responder: Responder, now: Instant
    ) -> None:
        """Answer the SyncGroup of a classic member with the member's assignment for its current
        epoch."""
        try:
            member, classic = self._find(group, request.member_id, request.group_instance_id)
            _check_generation(member, request.generation_id)
            name, metadata = classic.protocols[0]
            for asked, ours in (
                (request.protocol_type, CONSUMER_PROTOCOL),
                (request.protocol_name, name),
            ):
                if asked is not None and asked != ours:
                    raise RefusedError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            is_giving_up = member.state is MemberState.UNREVOKED_PARTITIONS
            if group.group_epoch > member.member_epoch and not is_giving_up:
                self._time_join(group, member, now)
                raise RefusedError(ErrorCode.REBALANCE_IN_PROGRESS)
        except RefusedError as refusal:
            self._outbox.answer(responder, refusal.code)
            return
        self._timers.cancel(self._timer(group, member, TimerKind.SYNC))
        self._consumers.extend_session(group, member, now)
        response = SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment_bytes(member.assigned, metadata, self._topics),
        )
        self._outbox.answer_when_committed(responder, response)

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, now: Instant) -> ErrorCode:
        """Restart the session timeout of a classic member. Returns REBALANCE_IN_PROGRESS if the
        member must join again to take its next step, an error code if the request is invalid, or
        NONE."""
        try:
            member, _ = self._find(group, request.member_id, request.group_instance_id)
            _check_generation(member, request.generation_id)
        except RefusedError as refusal:
            return refusal.code
        self._consumers.extend_session(group, member, now)
        is_to_move = (
            member.member_epoch < group.group_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (
                member.state is MemberState.UNRELEASED_PARTITIONS
                and not _waits_for_others(group, member)
            )
        )
        if not is_to_move:
            return ErrorCode.NONE
        self._time_join(group, member, now)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def leave(
        self, group: ConsumerGroup, identities: Sequence[MemberIdentity], now: Instant
    ) -> list[ErrorCode]:
        """Remove members of either protocol from a consumer group. An admin client may name a
        static member only by its instance id.

        Returns an error code for each member. As in Kafka, all members are looked up before the
        first one is removed.
        """
        codes, leaving = [], dict[str, None]()
        for identity in identities:
            try:
                member = self._member_of(group, identity)
            except RefusedError as refusal:
                codes.append(refusal.code)
            else:
                codes.append(ErrorCode.NONE)
                leaving[member.member_id] = None
        if leaving:
            self._consumers.remove(group, leaving.keys(), now)
        return codes

    def _member_of(self, group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if instance_id is not None:
            known_id = group.static_members.get(instance_id, "")
            return self._consumers.find_static(group, instance_id, member_id or known_id)
        member = group.members.get(member_id)
        if member is None:
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def _find(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> tuple[ConsumerMember, ClassicMemberState]:
        """Return a group member that uses the classic protocol. Raises RefusedError if the member
        uses the consumer protocol."""
        if instance_id is not None:
            member: ConsumerMember | None = self._consumers.find_static(
                group, instance_id, member_id
            )
        else:
            member = group.members.get(member_id)
        if member is None or member.classic is None:
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member, member.classic

    def _time_join(self, group: ConsumerGroup, member: ConsumerMember, now: Instant) -> None:
        """Start the rebalance timeout of a classic member that must join again. A timeout that is
        already running is not changed."""
        name = self._timer(group, member, TimerKind.JOIN)
        if self._timers.deadline_of(name) is None:
            self._timers.set(name, now.mono_ms + member.rebalance_timeout_ms)

    def _timer(self, group: ConsumerGroup, member: ConsumerMember, kind: TimerKind) -> TimerName:
        return TimerName(group.group_id, kind, member.member_id)


def _metadata(group: ClassicGroup, member: ClassicMember) -> bytes:
    """Return a classic member's metadata for the group's protocol, or for the first protocol that
    the member lists."""
    if group.protocol_name is None:
        return member.protocols[0].metadata
    return member.metadata_for(group.protocol_name)


def _have_common(group: ConsumerGroup, protocols: Iterable[Protocol]) -> bool:
    """Return True if at least one of `protocols` is supported by all classic members of a group."""
    known = [
        {name for name, _ in member.classic.protocols}
        for member in group.members.values()
        if member.classic is not None
    ]
    return any(all(name in names for names in known) for name, _ in protocols)


def _check_generation(member: ConsumerMember, generation_id: int) -> None:
    if generation_id != member.member_epoch:
        raise RefusedError(ErrorCode.ILLEGAL_GENERATION)


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return True if other members still own partitions of this group member's target
    assignment."""
    return any(
        group.owner_epoch_of(topic_id, index) != NO_OWNER
        for topic_id, indexes in group.target_of(member.member_id).items()
        for index in indexes - member.assigned.get(topic_id, frozenset())
    )
