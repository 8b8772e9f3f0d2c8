"""Decides the membership of share groups (KIP-932): joining, assignment, heartbeats, leaving. Pure.

Members join, report changes and leave with heartbeats. A heartbeat with epoch 0 joins the group,
and -1 leaves. Any other epoch keeps the member alive. Each heartbeat has these steps:

1. The member is added or updated.
2. If the group's subscriptions change, the group's epoch is incremented.
3. Partitions that the group has not consumed are recorded, and their states are requested.
4. If the target assignment is older than the group epoch, it is computed again.
5. The member receives its target. Nothing is revoked, since members may share a partition.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from ottla.broker.coordinators.backlog import Backlog
from ottla.broker.coordinators.effects import Instant, MemberClient, Outbox, Responder
from ottla.broker.coordinators.share_persister import NO_START_OFFSET, SharePartitionKey
from ottla.broker.coordinators.timers import Timers
from ottla.broker.groups.consumer.assignors.subscription import (
    AssignedSubscription,
    Assignor,
    PartitionCounts,
    PartitionRacks,
)
from ottla.broker.groups.consumer.consumer_group import unknown_member
from ottla.broker.groups.consumer.consumer_member import JOINING_EPOCH, Assignment
from ottla.broker.groups.consumer.target_schedule import TargetSchedule
from ottla.broker.groups.consumer.topic_view import TopicView
from ottla.broker.groups.share import simple_assignor
from ottla.broker.groups.share.partition_states import ROUND_MAX, Codes, PartitionStates
from ottla.broker.groups.share.share_changes import ShareChanges
from ottla.broker.groups.share.share_group import ShareGroup, check_epoch
from ottla.broker.groups.share.share_member import ShareMember
from ottla.broker.groups.share.share_partitions import Initialization
from ottla.broker.groups.timer_names import TimerKind, TimerName
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.groups import GroupConfig
from ottla.model.settings.share_groups import ShareGroupSettings
from ottla.node.network.steps import Steps
from ottla.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from ottla.wire.messages.share_group_heartbeat_response import (
    Assignment as AnsweredAssignment,
)
from ottla.wire.messages.share_group_heartbeat_response import (
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)


class ShareHeartbeat(NamedTuple):
    """ShareGroupHeartbeat request, and the client that sent it."""

    request: ShareGroupHeartbeatRequest
    client: MemberClient
    responder: Responder


class NewOffset(NamedTuple):
    """Start offset of a share group that an administrator sets for one partition."""

    topic_id: UUID
    partition: int
    start_offset: int


class ShareRebalancer:
    """Handler of heartbeats, timeouts and departures of members of share groups. It stores only
    target assignments that are being computed. Its timers are in the coordinator shard."""

    def __init__(
        self,
        config: GroupConfig,
        timers: Timers[TimerName],
        changes: ShareChanges,
        topics: TopicView,
        backlog: Backlog,
        outbox: Outbox,
        states: PartitionStates,
        *,
        settings: Callable[[str], ShareGroupSettings],
    ) -> None:
        """Create the rebalancer of share groups. `settings` returns the settings of one share
        group."""
        self._config = config.share
        # As in Kafka, no retry is sent while the records of the last attempt may be uncommitted.
        self._retry_ms = max(
            config.share.initialize_retry_interval_ms, config.offsets_commit_timeout_ms
        )
        self._timers = timers
        self._changes = changes
        self._topics = topics
        self._outbox = outbox
        self._states = states
        self._settings = settings
        self._targets: TargetSchedule[ShareGroup, ShareMember] = TargetSchedule(
            timers,
            changes,
            topics,
            backlog,
            interval_ms=lambda group_id: self._settings(group_id).assignment_interval_ms,
            assignor_of=_assignor_of,
        )

    # ---- heartbeats

    def heartbeat(
        self, group: ShareGroup, heartbeat: ShareHeartbeat, now: Instant
    ) -> ShareGroupHeartbeatResponse | None:
        """Process a share group member's heartbeat, and return the response.

        Returns None if a joining member gets its response later, when the target assignment is
        computed. If RefusedError is raised, the group is unchanged.
        """
        request = heartbeat.request
        member = self._find(group, request)
        described = _described(member, heartbeat)
        is_new = member.member_id not in group.members
        if is_new or described != member:
            self._changes.check(group, described)
            self._changes.describe(group, described)
        if described.subscribed_names != member.subscribed_names or group.group_epoch == 0:
            self._raise_epoch(group)
        self._initialize_missing(group, now)
        is_joining = request.member_epoch == JOINING_EPOCH
        if self._targets.is_behind(group, now) and is_joining:
            self._extend_session(group, described.member_id, now)
            self._targets.wait(
                group,
                described.member_id,
                heartbeat.responder,
                lambda when: self._answer_join(group, described.member_id, heartbeat, when),
            )
            return None
        moved = self._reconcile(group, described)
        self._extend_session(group, moved.member_id, now)
        is_full = is_joining or request.subscribed_topic_names is not None
        return self._answer_to(
            group, moved, has_assignment=is_full or moved.assigned != member.assigned
        )

    def check_first(self, group: ShareGroup, heartbeat: ShareHeartbeat) -> None:
        """Raise RefusedError for a heartbeat that no share group accepts, before a group is created
        for it."""
        newcomer = ShareMember(member_id=heartbeat.request.member_id)
        self._changes.check(group, _described(newcomer, heartbeat))

    def _find(self, group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareMember:
        """Return the share group member as it was before the heartbeat, or a new member if this
        heartbeat joins the group. Raises RefusedError for an unknown member, a full group or a
        wrong epoch."""
        member = group.members.get(request.member_id)
        size_max = self._config.size_max
        if member is None and len(group.members) >= size_max:
            raise RefusedError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {size_max} members.",
            )
        if member is None and request.member_epoch != JOINING_EPOCH:
            raise unknown_member(group.group_id, request.member_id)
        if member is None:
            return ShareMember(member_id=request.member_id)
        check_epoch(member, request.member_epoch)
        return member

    def _answer_join(
        self, group: ShareGroup, member_id: str, heartbeat: ShareHeartbeat, now: Instant
    ) -> None:
        """Answer the heartbeat of a joining member after the target assignment is computed."""
        member = group.members.get(member_id)
        if member is None:
            refusal = refused_share_heartbeat(unknown_member(group.group_id, member_id))
            self._outbox.answer(heartbeat.responder, refusal)
            return
        moved = self._reconcile(group, member)
        self._extend_session(group, member_id, now)
        answer = self._answer_to(group, moved, has_assignment=True)
        self._outbox.answer_when_committed(heartbeat.responder, answer)

    def _answer_to(
        self, group: ShareGroup, member: ShareMember, *, has_assignment: bool
    ) -> ShareGroupHeartbeatResponse:
        return ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self._settings(group.group_id).heartbeat_interval_ms,
            assignment=_answered(member.assigned) if has_assignment else None,
        )

    def _reconcile(self, group: ShareGroup, member: ShareMember) -> ShareMember:
        """Set the current assignment of a share group member to its target, without topics to which
        the member no longer subscribes. Returns the updated member."""
        target = group.target_of(member.member_id)
        if group.group_epoch > group.target_epoch:
            topics = map(self._topics.image.topic, member.subscribed_names)
            ids = {topic.id for topic in topics if topic is not None}
            target = {topic_id: target[topic_id] for topic_id in target if topic_id in ids}
        if member.member_epoch == group.target_epoch and member.assigned == target:
            return member
        previous = member.previous_member_epoch
        moved = replace(
            member,
            member_epoch=group.target_epoch,
            previous_member_epoch=previous
            if member.member_epoch == group.target_epoch
            else member.member_epoch,
            assigned=target,
        )
        self._changes.place(group, moved)
        return moved

    # ---- leaving

    def leave(
        self, group: ShareGroup, request: ShareGroupHeartbeatRequest
    ) -> ShareGroupHeartbeatResponse:
        """Remove a member that leaves the share group. Returns the response to its heartbeat."""
        if request.member_id not in group.members:
            raise unknown_member(group.group_id, request.member_id)
        self._remove(group, request.member_id)
        return ShareGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )

    def _remove(self, group: ShareGroup, member_id: str) -> None:
        """Remove a member from a share group. The next heartbeat from another member reassigns its
        partitions."""
        self._timers.cancel(TimerName(group.group_id, TimerKind.SESSION, member_id))
        self._changes.remove(group, member_id)
        self._raise_epoch(group)

    def on_timer(self, group: ShareGroup, name: TimerName, now: Instant) -> None:
        """Handle an expired deadline of the share group, or of one of its members."""
        if name.kind is TimerKind.ASSIGNMENT:
            self._targets.is_behind(group, now)
        elif name.kind is TimerKind.INITIALIZATION:
            self._initialize_again(group, now)
            if group.partitions.deleting:
                self.begin_deletion(group, list(group.partitions.deleting), lambda _codes: None)
        elif name.member_id in group.members:
            self._remove(group, name.member_id)

    # ---- epochs and targets

    def _raise_epoch(self, group: ShareGroup) -> None:
        self._changes.raise_epoch(group, group.hash_of_topics(self._topics.image))

    def take_waiting(self) -> Iterator[Responder]:
        """Remove and yield the callbacks of requests that wait for a target assignment."""
        return self._targets.take_waiting()

    # ---- states of partitions

    def _initialize_missing(self, group: ShareGroup, now: Instant) -> None:
        """Request durable states for the subscribed partitions that the share group has not
        consumed yet.

        New partitions of a topic that the group has consumed before are read from their start. For
        other topics, `share.auto.offset.reset` applies when their partitions are first read. A
        large number of partitions is requested in rounds.
        """
        names, image, partitions = group.subscribed_topics(), self._topics.image, group.partitions
        searched = group.searched
        if searched is not None and searched[0] is names and searched[1] is image:
            return
        if len(partitions.attempts) >= ROUND_MAX:
            return
        group.searched = (names, image)
        wanted: list[Initialization] = []
        former = dict(partitions.initializing)
        for name in sorted(names):
            topic = image.topic(name)
            if topic is None or topic.id in partitions.deleting:
                continue
            missing = partitions.missing(topic.id, len(topic.partitions))
            is_new = not partitions.is_known(topic.id) or topic.id in partitions.starting
            partitions.starting.discard(topic.id)
            if len(wanted) + len(missing) > ROUND_MAX:
                del missing[ROUND_MAX - len(wanted) :]
                group.searched = None
                if is_new and missing:
                    partitions.starting.add(topic.id)
            start = NO_START_OFFSET if is_new else 0
            new = [Initialization(topic.id, one, group.group_epoch, start) for one in missing]
            if new:
                partitions.begin(name, new)
                wanted += new
        if not wanted:
            return
        if not self._changes.fits_partitions(group):
            partitions.initializing = former
            for one in wanted:
                partitions.attempts.pop((one.topic_id, one.partition), None)
            return
        self._changes.write_partitions(group)
        self._request(group, tuple(wanted), now)

    def _request(self, group: ShareGroup, wanted: Sequence[Initialization], now: Instant) -> None:
        self._states.initialize(group.group_id, wanted)
        retry = TimerName(group.group_id, TimerKind.INITIALIZATION)
        self._timers.set(retry, now.mono_ms + self._retry_ms)

    def _initialize_again(self, group: ShareGroup, now: Instant) -> None:
        """Repeat the unconfirmed requests to initialise durable states of partitions."""
        wanted = tuple(group.partitions.unfinished(group.group_epoch))
        if wanted:
            self._request(group, wanted, now)

    def on_initialized(
        self, group: ShareGroup, wanted: Sequence[Initialization], codes: Codes, now: Instant
    ) -> None:
        """Record the durable states of partitions that now exist, so that the group's target
        assignment is computed again.

        If a state could not be created, its request is repeated after a pause. If the group needs
        further rounds of requests, the next round begins.
        """
        partitions = group.partitions
        done: dict[UUID, list[int]] = {}
        for one, code in zip(wanted, codes, strict=True):
            # The request may be one of a deleted group, or of a topic that was deleted meanwhile.
            is_current = partitions.attempts.get((one.topic_id, one.partition)) == one
            if code is ErrorCode.NONE and is_current:
                done.setdefault(one.topic_id, []).append(one.partition)
        if not done:
            return
        for topic_id, indexes in done.items():
            partitions.finish(topic_id, partitions.initializing[topic_id].name, indexes)
        self._changes.write_partitions(group)
        if not partitions.initializing and not partitions.deleting:
            self._timers.cancel(TimerName(group.group_id, TimerKind.INITIALIZATION))
        if group.members:
            self._raise_epoch(group)
            self._initialize_missing(group, now)

    def alter_offsets(
        self, group: ShareGroup, wanted: Sequence[NewOffset], responder: Responder
    ) -> None:
        """Initialise a share group's durable states again with other start offsets. `responder` is
        called with an error code for each partition.

        The new states get a new epoch of the group, which is higher than the epoch of every earlier
        state. A partition leader that has cached an earlier state is therefore fenced, and reads
        the new state. Kafka 4.4 repeats the epoch, so that a leader whose consumer is frozen
        continues with the old offsets.
        """
        self._raise_epoch(group)
        epoch = group.group_epoch
        self._states.reset(
            group.group_id,
            tuple(
                Initialization(one.topic_id, one.partition, epoch, one.start_offset)
                for one in wanted
            ),
            responder,
        )

    def on_reset(self, group: ShareGroup, wanted: Sequence[Initialization], codes: Codes) -> None:
        """Record the durable states whose start offsets an administrator has set."""
        partitions = group.partitions
        done: dict[UUID, set[int]] = {}
        for one, code in zip(wanted, codes, strict=True):
            if code is ErrorCode.NONE:
                done.setdefault(one.topic_id, set()).add(one.partition)
        is_other = False
        for topic_id, indexes in done.items():
            topic = self._topics.image.topics.get(topic_id)
            known = partitions.initialized.get(topic_id)
            if topic is not None and (known is None or not indexes <= known.partitions):
                partitions.finish(topic_id, topic.name, indexes)
                is_other = True
        if is_other:
            self._changes.write_partitions(group)
            if group.members:
                self._raise_epoch(group)

    def begin_deletion(
        self, group: ShareGroup, topic_ids: Collection[UUID], responder: Responder
    ) -> Sequence[SharePartitionKey]:
        """Begin to delete the durable states of topics for a share group, and return the keys of
        their partitions. `responder` is called with an error code for each key, or with one error
        code for all of them."""
        partitions, keys = group.partitions, []
        for topic_id in sorted(topic_ids):
            indexes = set(partitions.states_of(topic_id))
            name = next(
                (
                    states[topic_id].name
                    for states in (partitions.initialized, partitions.initializing)
                    if topic_id in states
                ),
                None,
            )
            topic = self._topics.image.topics.get(topic_id)
            if topic is not None and topic_id in partitions.deleting:
                indexes |= set(range(len(topic.partitions)))
            if not indexes:
                partitions.forget(topic_id)
                continue
            partitions.begin_deletion(topic_id, name or partitions.deleting[topic_id])
            keys += [SharePartitionKey(group.group_id, topic_id, one) for one in sorted(indexes)]
        self._changes.write_partitions(group)
        self._states.delete(group.group_id, tuple(keys), responder)
        return keys

    def on_deleted(
        self, group: ShareGroup, keys: Sequence[SharePartitionKey], codes: Codes, now: Instant
    ) -> None:
        """Record the topics whose durable states are all deleted. Failed deletions are repeated
        after a pause. Until then, the share group cannot consume the topics."""
        failed = {
            key.topic_id
            for key, code in zip(keys, codes, strict=True)
            if code is not ErrorCode.NONE
        }
        if failed:
            retry = TimerName(group.group_id, TimerKind.INITIALIZATION)
            self._timers.set(retry, now.mono_ms + self._retry_ms)
        gone = {key.topic_id for key in keys} - failed
        known = gone & group.partitions.deleting.keys()
        for topic_id in known:
            del group.partitions.deleting[topic_id]
        if known:
            group.searched = None
            self._changes.write_partitions(group)

    # ---- topics and time

    def on_topics(self, group: ShareGroup, changed: Set[str], now: Instant) -> None:
        """Apply changes of topics to a share group. If the group's topics changed, its epoch is
        incremented."""
        self._forget_deleted(group)
        if group.members and not changed.isdisjoint(group.subscribed_topics()):
            if group.hash_of_topics(self._topics.image) != group.metadata_hash:
                self._raise_epoch(group)
            self._initialize_missing(group, now)

    def _forget_deleted(self, group: ShareGroup) -> None:
        """Remove the partitions of deleted topics from a share group. The share coordinator deletes
        their durable states."""
        gone = [one for one in group.partitions.topic_ids() if one not in self._topics.image.topics]
        for topic_id in gone:
            group.partitions.forget(topic_id)
        if gone:
            self._changes.write_partitions(group)

    def resume(self, group: ShareGroup, now: Instant) -> None:
        """Start to serve a share group that was loaded from the log, with new timeouts.
        Initialisations and deletions that an earlier coordinator left unfinished are repeated."""
        self.restart_sessions(group, now)
        self._forget_deleted(group)
        if group.members and group.hash_of_topics(self._topics.image) != group.metadata_hash:
            self._raise_epoch(group)
        self._initialize_again(group, now)
        if group.members:
            self._initialize_missing(group, now)
        if group.partitions.deleting:
            self.begin_deletion(group, list(group.partitions.deleting), lambda _codes: None)

    def restart_sessions(self, group: ShareGroup, now: Instant) -> None:
        """Restart the session timeouts of all members of a share group."""
        for member_id in group.members:
            self._extend_session(group, member_id, now)

    def _extend_session(self, group: ShareGroup, member_id: str, now: Instant) -> None:
        timeout_ms = self._settings(group.group_id).session_timeout_ms
        session = TimerName(group.group_id, TimerKind.SESSION, member_id)
        self._timers.set(session, now.mono_ms + timeout_ms)


def _assignor_of(group: ShareGroup) -> Assignor:
    """Return the assignor of a share group. The assignor assigns only partitions whose durable
    state is initialised at the time of this call."""
    partitions = group.partitions

    def assign(
        members: Mapping[str, AssignedSubscription],
        counts: PartitionCounts,
        _racks: PartitionRacks,
    ) -> Steps[dict[str, Assignment]]:
        return simple_assignor.assign_in_steps(members, partitions.assignable(counts))

    return assign


def _described(member: ShareMember, heartbeat: ShareHeartbeat) -> ShareMember:
    """Return a share group member with the description in a heartbeat. Fields that the heartbeat
    omits are unchanged."""
    request = heartbeat.request
    names = request.subscribed_topic_names
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client=heartbeat.client,
        subscribed_names=member.subscribed_names
        if names is None
        else frozenset(name for name in names if name is not None),
    )


def refused_share_heartbeat(refusal: RefusedError) -> ShareGroupHeartbeatResponse:
    """Return the response to a ShareGroupHeartbeat that is refused."""
    return ShareGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.message)


def _answered(assigned: Assignment) -> AnsweredAssignment:
    return AnsweredAssignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(assigned[topic_id]))
            for topic_id in sorted(assigned)
        ]
    )
