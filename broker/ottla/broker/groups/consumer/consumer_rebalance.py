"""Decides the membership of consumer groups (KIP-848): joining, assignment, heartbeats, leaving.
Pure.

Members join, report changes and leave with heartbeats. A heartbeat with epoch 0 joins the group, -1
leaves, and -2 leaves temporarily (static members). Any other epoch keeps the member alive and
reports its changes. Each heartbeat has these steps:

1. The member is added or updated.
2. If the group's subscriptions change, the group's epoch is incremented.
3. If the target assignment is older than the group epoch, it is computed again (`target_job.py`).
4. The member advances one step towards its target (`reconcile.py`).

Other members advance with their own heartbeats. A large target is computed over several event-loop
iterations. Members meanwhile continue towards the previous target, and joins are answered when the
new target is ready.
"""

from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from typing import NamedTuple

from ottla.broker.coordinators.backlog import Backlog
from ottla.broker.coordinators.effects import Instant, MemberClient, Outbox, Responder
from ottla.broker.coordinators.timers import Timers
from ottla.broker.groups.consumer.assignors.subscription import Assignor
from ottla.broker.groups.consumer.assignors.table import ASSIGNORS
from ottla.broker.groups.consumer.consumer_changes import ConsumerChanges
from ottla.broker.groups.consumer.consumer_group import (
    ConsumerGroup,
    ResolvedRegex,
    check_epoch,
    may_join_again,
    unknown_member,
)
from ottla.broker.groups.consumer.consumer_member import (
    JOINING_EPOCH,
    LEAVING_FOR_A_WHILE_EPOCH,
    NO_REBALANCE_TIMEOUT_MS,
    NOTHING,
    Assignment,
    ConsumerMember,
    MemberState,
    assignment_of,
)
from ottla.broker.groups.consumer.reconcile import reconcile
from ottla.broker.groups.consumer.target_schedule import TargetSchedule
from ottla.broker.groups.consumer.topic_view import ResolvedTopics, TopicView
from ottla.broker.groups.timer_names import TimerKind, TimerName
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.group_overrides import GroupSettings
from ottla.model.settings.groups import GroupConfig
from ottla.node.network.dispatch import Permissions
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import (
    Assignment as AnsweredAssignment,
)
from ottla.wire.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)


class MemberHeartbeat(NamedTuple):
    """ConsumerGroupHeartbeat request, and the client that sent it."""

    request: ConsumerGroupHeartbeatRequest
    client: MemberClient
    responder: Responder
    permissions: Permissions | None = None

    @property
    def owned(self) -> Assignment | None:
        """Partitions that the member owns according to the heartbeat, or None if the heartbeat does
        not list them."""
        listed = self.request.topic_partitions
        return None if listed is None else assignment_of(listed)

    @property
    def is_short(self) -> bool:
        """True if the heartbeat contains no description of the member: no instance id, rack,
        timeout, subscription or assignor."""
        request = self.request
        return (
            request.instance_id is None
            and request.rack_id is None
            and request.rebalance_timeout_ms == NO_REBALANCE_TIMEOUT_MS
            and request.subscribed_topic_names is None
            and request.subscribed_topic_regex is None
            and request.server_assignor is None
        )

    @property
    def is_full(self) -> bool:
        """True if the heartbeat describes the member completely. The response then contains the
        whole assignment."""
        request = self.request
        return (
            request.rebalance_timeout_ms != NO_REBALANCE_TIMEOUT_MS
            and request.topic_partitions is not None
            and (
                request.subscribed_topic_names is not None
                or request.subscribed_topic_regex is not None
            )
        )


class ConsumerRebalancer:
    """Handler of heartbeats, timeouts and departures of members of consumer groups. It stores only
    target assignments that are being computed. Its timers are in the coordinator shard."""

    def __init__(
        self,
        config: GroupConfig,
        timers: Timers[TimerName],
        changes: ConsumerChanges,
        topics: TopicView,
        backlog: Backlog,
        outbox: Outbox,
        *,
        settings: Callable[[str], GroupSettings],
        new_id: Callable[[], str],
        downgrade: Callable[[ConsumerGroup, Set[str], Instant], bool],
    ) -> None:
        """Create the rebalancer of consumer groups. `settings` returns the settings of one group.

        `downgrade` is called before members are removed. If all remaining members use the classic
        protocol, it replaces the group by a classic group and returns True.
        """
        self._config = config
        self._timers = timers
        self._changes = changes
        self._topics = topics
        self._settings = settings
        self._new_id = new_id
        self._downgrade = downgrade
        self._outbox = outbox
        self._targets: TargetSchedule[ConsumerGroup, ConsumerMember] = TargetSchedule(
            timers,
            changes,
            topics,
            backlog,
            interval_ms=lambda group_id: self._settings(group_id).assignment_interval_ms,
            assignor_of=self._assignor_of,
        )

    # ---- heartbeats

    def heartbeat(
        self, group: ConsumerGroup, heartbeat: MemberHeartbeat, now: Instant
    ) -> ConsumerGroupHeartbeatResponse | None:
        """Process the heartbeat of a consumer group member: add the member to the group, or perform
        its next step towards its target assignment. Returns the response.

        Returns None if a new member gets its response later, when the target assignment is
        computed. If RefusedError is raised, the group is unchanged.
        """
        request, owned = heartbeat.request, heartbeat.owned
        self._check_subscription(request)
        member, replaced = self._find(group, heartbeat, owned)
        described = _described(member, heartbeat)
        if described is not member and described != member:
            self._changes.check(group, described)
        if replaced is not None:
            self._changes.check(group, member)
        # RefusedError is not raised from here on.
        if replaced is not None:
            self.replace_static(group, replaced, member)
        if member.classic is not None:
            # The member changes its protocol, so that no JoinGroup or SyncGroup will follow.
            self.cancel_timers(group, member.member_id)
        is_joining = request.member_epoch == JOINING_EPOCH
        is_read_otherwise = group.note_reader(described.subscribed_regex, heartbeat.permissions)
        self._take_description(group, member, described, now)
        if group.readers and now.mono_ms >= group.readers_due_ms:
            is_read_otherwise |= self._refresh_readers(group, now)
        if is_read_otherwise and self._resolve(group, now):
            self._raise_epoch(group)
        if self._targets.is_behind(group, now) and is_joining:
            self.extend_session(group, described, now)
            joined_id = described.member_id
            self._targets.wait(
                group,
                joined_id,
                heartbeat.responder,
                lambda when: self._answer_join(group, joined_id, heartbeat, when),
            )
            return None
        moved = self._reconcile(group, described, owned, now)
        self.extend_session(group, moved, now)
        has_whole_assignment = is_joining or heartbeat.is_full or moved.assigned != member.assigned
        return self._answer_to(group, moved, has_whole_assignment=has_whole_assignment)

    def _answer_to(
        self, group: ConsumerGroup, member: ConsumerMember, *, has_whole_assignment: bool
    ) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self._settings(group.group_id).heartbeat_interval_ms,
            assignment=_answered(member.assigned) if has_whole_assignment else None,
        )

    def advance(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        described: ConsumerMember,
        owned: Assignment | None,
        now: Instant,
    ) -> ConsumerMember:
        """Update the description of a consumer group member, and perform its next step towards its
        target assignment."""
        self._take_description(group, member, described, now)
        self._targets.is_behind(group, now)
        return self._reconcile(group, described, owned, now)

    def _take_description(
        self, group: ConsumerGroup, member: ConsumerMember, described: ConsumerMember, now: Instant
    ) -> None:
        """Update the description of a consumer group member. If the group's topics or the member's
        rack change, the group's epoch is incremented."""
        # Most heartbeats describe nothing: `described` is then `member` itself.
        is_known = described is member and member.member_id in group.members
        needs_epoch = not is_known and self._describe(group, member, described, now)
        if needs_epoch or group.group_epoch == 0:
            self._raise_epoch(group)

    def _describe(
        self, group: ConsumerGroup, member: ConsumerMember, described: ConsumerMember, now: Instant
    ) -> bool:
        """Update the description of a new or changed member. Returns whether the group's topics or
        the member's rack have changed."""
        topics = group.topics_of(member)
        if member.member_id not in group.members or described != member:
            self._changes.describe(group, described)
        is_group_touched = False
        if described.subscribed_regex != member.subscribed_regex:
            is_group_touched = self._resolve(group, now)
        # The group may know the regex already; then only this member's topics change.
        has_other_topics = is_group_touched or group.topics_of(described) != topics
        # Kafka 4.4 keeps the epoch if only the rack changes: its assignors ignore racks.
        return has_other_topics or described.rack_id != member.rack_id

    def check_first(self, group: ConsumerGroup, heartbeat: MemberHeartbeat) -> None:
        """Raise RefusedError for a heartbeat that no consumer group accepts, before a group is
        created for it."""
        self._check_subscription(heartbeat.request)
        newcomer = ConsumerMember(member_id=heartbeat.request.member_id)
        self._changes.check(group, _described(newcomer, heartbeat))

    def _check_subscription(self, request: ConsumerGroupHeartbeatRequest) -> None:
        """Raise RefusedError if the regular expression to which a member subscribes is invalid."""
        if request.subscribed_topic_regex:
            self._topics.check(request.subscribed_topic_regex)

    def _find(
        self, group: ConsumerGroup, heartbeat: MemberHeartbeat, owned: Assignment | None
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """Return the group member before the heartbeat, and the static member that it replaces. The
        second value is None if no member is replaced."""
        request = heartbeat.request
        instance_id, is_joining = request.instance_id, request.member_epoch == JOINING_EPOCH
        known_id = None if instance_id is None else group.static_members.get(instance_id)
        member = group.members.get(request.member_id)
        if instance_id is not None and not is_joining:
            member = self.find_static(group, instance_id, request.member_id)
        elif known_id is not None and not may_join_again(group, member, known_id):
            known = group.members[known_id]
            if not known.is_away and known.classic is None:
                raise RefusedError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {request.member_id} with instance id {instance_id} cannot "
                    f"join the group because the instance id is owned by {known_id} member.",
                )
            member_id = request.member_id or self._new_id()
            again = replace(known, member_id=member_id, member_epoch=0, previous_member_epoch=0)
            return again, known
        if member is None:
            if not is_joining:
                raise unknown_member(group.group_id, request.member_id)
            self.check_room(len(group.members))
            return ConsumerMember(member_id=request.member_id or self._new_id()), None
        if is_joining and member.member_id in group.rejoining_ids:
            group.rejoining_ids.discard(member.member_id)
        else:
            check_epoch(group, member, request.member_epoch, owned)
        return member, None

    def check_room(self, member_count: int) -> None:
        """Raise RefusedError if a group with `member_count` members has reached its maximum
        size."""
        size_max = self._config.consumer_size_max
        if member_count >= size_max:
            raise RefusedError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {size_max} members.",
            )

    def replace_static(
        self, group: ConsumerGroup, old: ConsumerMember, new: ConsumerMember
    ) -> None:
        """Assign a new member id to a restarted static group member. The member keeps its target
        assignment."""
        self._targets.rename(group, old.member_id, new.member_id)
        target = group.target_of(old.member_id)
        self.cancel_timers(group, old.member_id)
        self._changes.remove(group, old.member_id)
        self._changes.describe(group, new)
        self._changes.set_target(group, new.member_id, target)
        self._changes.place(group, new)

    def _reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        owned: Assignment | None,
        now: Instant,
    ) -> ConsumerMember:
        moved = reconcile(
            member,
            target_epoch=group.target_epoch,
            target=group.target_of(member.member_id),
            owner_epoch_of=group.owner_epoch_of,
            owned=owned,
        )
        if moved is not member and moved != member:
            self._changes.place(group, moved)
            self._time_revocation(group, moved, now)
        return moved

    def _time_revocation(self, group: ConsumerGroup, member: ConsumerMember, now: Instant) -> None:
        name = TimerName(group.group_id, TimerKind.REVOCATION, member.member_id)
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            self._timers.set(name, now.mono_ms + member.rebalance_timeout_ms)
        else:
            self._timers.cancel(name)

    # ---- leaving

    def leave(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, now: Instant
    ) -> ConsumerGroupHeartbeatResponse:
        """Remove a member that leaves the consumer group. A static member that leaves temporarily
        remains in the group until its session times out."""
        if request.instance_id is None:
            member = group.members.get(request.member_id)
            if member is None:
                raise unknown_member(group.group_id, request.member_id)
        else:
            member = self.find_static(group, request.instance_id, request.member_id)
        if request.member_epoch == LEAVING_FOR_A_WHILE_EPOCH:
            self._timers.cancel(TimerName(group.group_id, TimerKind.REVOCATION, member.member_id))
            away = replace(
                member,
                member_epoch=LEAVING_FOR_A_WHILE_EPOCH,
                pending_revocation=NOTHING,
            )
            self._changes.place(group, away)
        else:
            self.remove(group, {member.member_id}, now)
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )

    def find_static(self, group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerMember:
        """Return a static member of the group. Raises RefusedError if another member id has
        replaced `member_id`."""
        known_id = group.static_members.get(instance_id)
        if known_id is None:
            raise RefusedError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown."
            )
        if known_id != member_id:
            raise RefusedError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by "
                f"member {known_id}.",
            )
        return group.members[known_id]

    def remove(self, group: ConsumerGroup, member_ids: Set[str], now: Instant) -> None:
        """Remove members from a consumer group. The next heartbeat from another member reassigns
        their partitions."""
        if self._downgrade(group, member_ids, now):
            return
        regexes = dict.fromkeys(group.members[one].subscribed_regex for one in member_ids)
        for member_id in member_ids:
            self.cancel_timers(group, member_id)
            self._changes.remove(group, member_id)
        regexes.pop("", None)
        used = {one.subscribed_regex for one in group.members.values()} if regexes else set()
        for regex in regexes:
            if regex not in used:
                self._changes.forget_regex(group, regex)
        self._raise_epoch(group)

    def on_timer(self, group: ConsumerGroup, name: TimerName, now: Instant) -> None:
        """Handle an expired deadline of the consumer group, or of one of its members."""
        member = group.members.get(name.member_id)
        if name.kind is TimerKind.ASSIGNMENT:
            self._targets.is_behind(group, now)
        elif name.kind is not TimerKind.REVOCATION:
            self.on_member_timer(group, name.member_id, now)
        elif member is not None and member.state is MemberState.UNREVOKED_PARTITIONS:
            # The member did not revoke its partitions in time, while others wait for them.
            self.remove(group, {name.member_id}, now)

    def on_member_timer(self, group: ConsumerGroup, member_id: str, now: Instant) -> None:
        """Remove a group member that sent no heartbeats, or a classic member that did not join or
        sync in time."""
        if member_id in group.members:
            self.remove(group, {member_id}, now)

    # ---- epochs and targets

    def _raise_epoch(self, group: ConsumerGroup) -> None:
        self._changes.raise_epoch(group, group.hash_of_topics(self._topics.image))

    def _assignor_of(self, group: ConsumerGroup) -> Assignor:
        default = self._config.consumer_assignors[0]
        # The log of another coordinator may name an assignor that does not exist here.
        return ASSIGNORS.get(group.assignor_name(default), ASSIGNORS[default])

    def _answer_join(
        self, group: ConsumerGroup, member_id: str, heartbeat: MemberHeartbeat, now: Instant
    ) -> None:
        """Answer the heartbeat of a joining member after the target assignment is computed."""
        try:
            member = group.members.get(member_id)
            if member is None:
                raise unknown_member(group.group_id, member_id)
            moved = self._reconcile(group, member, heartbeat.owned, now)
        except RefusedError as refusal:
            self._outbox.answer(heartbeat.responder, refused_heartbeat(refusal))
            return
        self.extend_session(group, moved, now)
        answer = self._answer_to(group, moved, has_whole_assignment=True)
        self._outbox.answer_when_committed(heartbeat.responder, answer)

    def take_waiting(self, group_id: str | None = None) -> Iterator[Responder]:
        """Remove and yield the callbacks of requests that wait for a target assignment. If
        `group_id` is None, the requests of all groups are included."""
        return self._targets.take_waiting(group_id)

    # ---- topics

    def on_topics(self, group: ConsumerGroup, changed: frozenset[str], now: Instant) -> None:
        """Apply changes of topics to a consumer group. Increments the group's epoch if the
        group's topics changed. Changed racks of replicas also increment the epoch if a member
        has a rack."""
        is_touched = not changed.isdisjoint(group.subscribed_topics())
        if self._resolve(group, now) or (is_touched and self._has_other_topics(group)):
            self._raise_epoch(group)

    def _has_other_topics(self, group: ConsumerGroup) -> bool:
        """Return whether the group's topics differ from the topics at its last change of epoch."""
        return group.hash_of_topics(self._topics.image) != group.metadata_hash

    def _refresh_readers(self, group: ConsumerGroup, now: Instant) -> bool:
        """Remove the subscribers to the group's regular expressions that sent no heartbeat since
        the last check. Returns True if the remaining members may see more topics."""
        is_first = not group.readers_due_ms
        session_ms = self._settings(group.group_id).session_timeout_ms
        interval_ms = max(self._config.consumer_regex_refresh_interval_ms, session_ms)
        group.readers_due_ms = now.mono_ms + interval_ms
        if is_first:
            return False
        # Check all of them, without stopping at the first one with a silent subscriber.
        return sum(readers.forget_silent() for readers in group.readers.values()) > 0

    def _resolve(self, group: ConsumerGroup, now: Instant) -> bool:
        """Update the topics that match the group's regular expressions. Returns True if they have
        changed."""
        if not (group.regexes or any(one.subscribed_regex for one in group.members.values())):
            return False
        is_other = False
        used = {one.subscribed_regex for one in group.members.values()} - {""}
        for regex in group.readers.keys() - used:
            del group.readers[regex]
        for regex in sorted(set(group.regexes) - used):
            self._changes.forget_regex(group, regex)
            is_other = True
        for regex in sorted(used):
            found = self._resolved(regex)
            if found is None:
                continue
            known, readers = group.regexes.get(regex), group.readers.get(regex)
            topics = found.topics if readers is None else readers.seen(found.topics)
            if known is None or known.topics != topics:
                resolved = ResolvedRegex(topics, found.version, now.wall_ms)
                self._changes.resolve(group, regex, resolved)
                is_other = True
        return is_other

    def _resolved(self, regex: str) -> ResolvedTopics | None:
        try:
            return self._topics.resolve(regex)
        except RefusedError:
            return None  # Another coordinator accepted this expression; its topics stay.

    # ---- time

    def resume(self, group: ConsumerGroup, now: Instant) -> None:
        """Start to serve a consumer group that was loaded from the log, with new timeouts."""
        self.restart_sessions(group, now)
        if group.members and (self._resolve(group, now) or self._has_other_topics(group)):
            self._raise_epoch(group)

    def restart_sessions(self, group: ConsumerGroup, now: Instant) -> None:
        """Restart the session and revocation timeouts of all members of a consumer group."""
        for member in group.members.values():
            self.extend_session(group, member, now)
            self._time_revocation(group, member, now)

    def extend_session(self, group: ConsumerGroup, member: ConsumerMember, now: Instant) -> None:
        """Restart the session timeout of a consumer group member. Members of the classic protocol
        have their own timeouts; all others have the group's."""
        if member.classic is None:
            timeout_ms = self._settings(group.group_id).session_timeout_ms
        else:
            timeout_ms = member.classic.session_timeout_ms
        session = TimerName(group.group_id, TimerKind.SESSION, member.member_id)
        self._timers.set(session, now.mono_ms + timeout_ms)

    def cancel_timers(self, group: ConsumerGroup, member_id: str) -> None:
        """Cancel all timers of a member that was removed from its group."""
        for kind in TimerKind:
            self._timers.cancel(TimerName(group.group_id, kind, member_id))


def _described(member: ConsumerMember, heartbeat: MemberHeartbeat) -> ConsumerMember:
    """Return a consumer group member with the description in a heartbeat. Fields that the heartbeat
    omits are unchanged."""
    request = heartbeat.request
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    if heartbeat.is_short and member.client == heartbeat.client and member.classic is None:
        return member
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client=heartbeat.client,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if timeout_ms == NO_REBALANCE_TIMEOUT_MS
        else timeout_ms,
        server_assignor=member.server_assignor
        if request.server_assignor is None
        else request.server_assignor,
        subscribed_names=member.subscribed_names if names is None else frozenset(names),
        subscribed_regex=member.subscribed_regex if regex is None else regex,
        classic=None,
    )


def refused_heartbeat(refusal: RefusedError) -> ConsumerGroupHeartbeatResponse:
    """Return the response to a ConsumerGroupHeartbeat that is refused."""
    return ConsumerGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.message)


def _answered(assigned: Assignment) -> AnsweredAssignment:
    return AnsweredAssignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(assigned[topic_id]))
            for topic_id in sorted(assigned)
        ]
    )
