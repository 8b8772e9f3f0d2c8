"""The consumer protocol (KIP-848): how members join, are given their work, and leave.  Pure.

Everything is a heartbeat.  Epoch 0 joins, -1 leaves, -2 leaves for a while (static members); any
other is a sign of life that also says what changed.  Each heartbeat, in this order: the member is
taken in or brought up to date; if that changes what the group subscribes, the group's epoch rises;
if the target assignment is older than the group, it is computed again (`target_job.py`); and the
member is taken one step towards its target (`reconcile.py`).  The others take theirs with their
own heartbeats.  Where computing the target takes longer than one turn may, members go on towards
the one before it, and who joins is answered when it is there.
"""

import hashlib
from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from typing import NamedTuple

from ottla.broker.groups.assignors.table import ASSIGNORS
from ottla.broker.groups.backlog import Backlog
from ottla.broker.groups.commit_rules import unknown_member
from ottla.broker.groups.consumer_changes import ConsumerChanges
from ottla.broker.groups.consumer_group import (
    ConsumerGroup,
    ResolvedRegex,
    check_epoch,
    may_join_again,
)
from ottla.broker.groups.consumer_member import (
    JOINING_EPOCH,
    LEAVING_FOR_A_WHILE_EPOCH,
    NO_REBALANCE_TIMEOUT_MS,
    NOTHING,
    Assignment,
    ConsumerMember,
    MemberState,
    assignment_of,
)
from ottla.broker.groups.effects import Asker, Instant, MemberClient, Outbox
from ottla.broker.groups.reconcile import reconcile
from ottla.broker.groups.target_job import TargetJob
from ottla.broker.groups.timer_names import TimerKind, TimerName
from ottla.broker.groups.timers import Timers
from ottla.broker.groups.topic_view import Resolved, TopicView
from ottla.broker.network.dispatch import Permissions
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.group_overrides import GroupSettings
from ottla.model.settings.groups import GroupConfig
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import (
    Assignment as AnsweredAssignment,
)
from ottla.wire.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)


class MemberHeartbeat(NamedTuple):
    """One ConsumerGroupHeartbeat and who sent it."""

    request: ConsumerGroupHeartbeatRequest
    client: MemberClient
    asker: Asker
    permissions: Permissions | None = None

    @property
    def owned(self) -> Assignment | None:
        """What the member works on; None if it does not say."""
        listed = self.request.topic_partitions
        return None if listed is None else assignment_of(listed)

    @property
    def is_short(self) -> bool:
        """Whether it says nothing of the member but that it lives."""
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
        """Whether it says everything: it wants to be told everything, too."""
        request = self.request
        is_subscribing = (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        return (
            request.rebalance_timeout_ms != NO_REBALANCE_TIMEOUT_MS
            and is_subscribing
            and request.topic_partitions is not None
        )


class Waiting(NamedTuple):
    """One who joined, and the epoch of the target that it waits for."""

    beat: MemberHeartbeat
    member_id: str
    epoch: int


class ConsumerRebalancer:
    """Moves consumer groups; owns nothing but the timers it sets in those of the shard."""

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
        """`settings` returns what one group goes by.

        `downgrade` is asked before members are removed: it makes a classic group of those who
        stay, if they are such, and says whether it did.
        """
        self._config = config
        self._timers = timers
        self._changes = changes
        self._topics = topics
        self._settings = settings
        self._new_id = new_id
        self._downgrade = downgrade
        self._backlog = backlog
        self._outbox = outbox
        self._jobs: dict[str, TargetJob] = {}
        self._waiting: dict[str, list[Waiting]] = {}
        """Who joined and is answered when the target of that epoch is computed, by group."""

    # ---- a member speaks

    def heartbeat(
        self, group: ConsumerGroup, beat: MemberHeartbeat, now: Instant
    ) -> ConsumerGroupHeartbeatResponse | None:
        """Take a member in, or one step on; RefusedError changes nothing.

        None where who joins is answered later: what it is to get is being computed.
        """
        request, owned = beat.request, beat.owned
        self._check_subscription(request)
        member, replaced = self._find(group, beat, owned)
        described = _described(member, beat)
        if described is not member and described != member:
            self._changes.check(group, described)
        if replaced is not None:
            self._changes.check(group, member)
        # From here on nothing is refused.
        if replaced is not None:
            self.replace_static(group, replaced, member)
        if member.classic is not None:
            # It goes over itself: no JoinGroup or SyncGroup will come of it.
            self.cancel_timers(group, member.member_id)
        is_joining = request.member_epoch == JOINING_EPOCH
        is_read_otherwise = group.note_reader(described.subscribed_regex, beat.permissions)
        self._take_description(group, member, described, now)
        if group.readers and now.mono_ms >= group.readers_due_ms:
            is_read_otherwise |= self._refresh_readers(group, now)
        if is_read_otherwise and self._resolve(group, now):
            self._raise_epoch(group)
        if self._is_target_behind(group, now) and is_joining:
            self.extend_session(group, described, now)
            waiting = Waiting(beat, described.member_id, group.group_epoch)
            self._waiting.setdefault(group.group_id, []).append(waiting)
            return None
        moved = self._reconcile(group, described, owned, now)
        self.extend_session(group, moved, now)
        is_told_all = is_joining or beat.is_full or moved.assigned != member.assigned
        return self._answer_to(group, moved, is_told_all=is_told_all)

    def _answer_to(
        self, group: ConsumerGroup, member: ConsumerMember, *, is_told_all: bool
    ) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self._settings(group.group_id).heartbeat_interval_ms,
            assignment=_answered(member.assigned) if is_told_all else None,
        )

    def advance(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        described: ConsumerMember,
        owned: Assignment | None,
        now: Instant,
    ) -> ConsumerMember:
        """Take in how a member describes itself now, and take it one step towards its target."""
        self._take_description(group, member, described, now)
        self._is_target_behind(group, now)
        return self._reconcile(group, described, owned, now)

    def _take_description(
        self, group: ConsumerGroup, member: ConsumerMember, described: ConsumerMember, now: Instant
    ) -> None:
        """Take in how a member describes itself now; other topics raise the group's epoch."""
        is_new = member.member_id not in group.members
        topics = group.topics_of(member)
        if is_new or (described is not member and described != member):
            self._changes.describe(group, described)
        is_group_touched = False
        if described.subscribed_regex != member.subscribed_regex:
            is_group_touched = self._resolve(group, now)
        # Its regex may be one that the group knew: then it is this member's topics alone.
        has_other_topics = is_group_touched or group.topics_of(described) != topics
        if has_other_topics or group.group_epoch == 0:
            self._raise_epoch(group)

    def check_first(self, group: ConsumerGroup, beat: MemberHeartbeat) -> None:
        """Refuse what no member may say, before a group is made for it."""
        self._check_subscription(beat.request)
        newcomer = ConsumerMember(member_id=beat.request.member_id)
        self._changes.check(group, _described(newcomer, beat))

    def _check_subscription(self, request: ConsumerGroupHeartbeatRequest) -> None:
        """Refuse what is no regular expression."""
        if request.subscribed_topic_regex:
            self._topics.check(request.subscribed_topic_regex)

    def _find(
        self, group: ConsumerGroup, beat: MemberHeartbeat, owned: Assignment | None
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """Return the member, as it was, and the static one that it replaces."""
        request = beat.request
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
        if is_joining and member.member_id in group.told_to_rejoin:
            group.told_to_rejoin.discard(member.member_id)
        else:
            check_epoch(group, member, request.member_epoch, owned)
        return member, None

    def check_room(self, member_count: int) -> None:
        """Refuse one more member of a full group."""
        size_max = self._config.consumer_size_max
        if member_count >= size_max:
            raise RefusedError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {size_max} members.",
            )

    def replace_static(
        self, group: ConsumerGroup, old: ConsumerMember, new: ConsumerMember
    ) -> None:
        """A static member is back under another id: what is meant for it stays as it is."""
        job = self._jobs.get(group.group_id)
        if job is not None and job.group is group:
            job.rename(old.member_id, new.member_id)
        target = group.target_of(old.member_id)
        self.cancel_timers(group, old.member_id)
        self._changes.remove(group, old.member_id)
        self._changes.describe(group, new)
        self._changes.aim(group, new.member_id, target)
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

    # ---- members leave

    def leave(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, now: Instant
    ) -> ConsumerGroupHeartbeatResponse:
        """Let a member go, for good or (a static one) until its session is over."""
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
        """Return a static member; refuse who was replaced by it."""
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
        """Remove members; their partitions are assigned with the next heartbeat of another one."""
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
        """A deadline of the group, or of one of its members, has come."""
        member = group.members.get(name.member_id)
        if name.kind is TimerKind.ASSIGNMENT:
            self._is_target_behind(group, now)
        elif name.kind is not TimerKind.REVOCATION:
            self.on_member_timer(group, name.member_id, now)
        elif member is not None and member.state is MemberState.UNREVOKED_PARTITIONS:
            # It did not give its partitions up in time: others are waiting for them.
            self.remove(group, {name.member_id}, now)

    def on_member_timer(self, group: ConsumerGroup, member_id: str, now: Instant) -> None:
        """A member was silent for too long, or (a classic one) slow to join or to sync."""
        if member_id in group.members:
            self.remove(group, {member_id}, now)

    # ---- epochs and targets

    def _raise_epoch(self, group: ConsumerGroup) -> None:
        self._changes.raise_epoch(group, self._hash_of(group))

    def _hash_of(self, group: ConsumerGroup) -> int:
        """Return a number that is another one when the topics of the group are others."""
        names, image = group.subscribed_topics(), self._topics.image
        if group.hashed is None or group.hashed[0] is not names or group.hashed[1] is not image:
            group.hashed = (names, image, _hash_of(names, image))
        return group.hashed[2]

    def _is_target_behind(self, group: ConsumerGroup, now: Instant) -> bool:
        """Have a target computed that is older than the group; return whether that takes longer."""
        if group.group_epoch <= group.target_epoch:
            return False
        under_way = self._jobs.get(group.group_id)
        if under_way is not None and under_way.group is group:
            return True
        if group.target_ms is not None:
            due_ms = group.target_ms + self._settings(group.group_id).assignment_interval_ms
            if now.mono_ms < due_ms:
                self._timers.set(TimerName(group.group_id, TimerKind.ASSIGNMENT), due_ms)
                return True
        default = self._config.consumer_assignors[0]
        # A log of another coordinator may name one that is not here.
        assign = ASSIGNORS.get(group.assignor_name(default), ASSIGNORS[default])
        job = TargetJob(group, self._topics.image, assign)
        self._jobs[group.group_id] = job
        return not self._backlog.begin(self._compute(job), now)

    def _compute(self, job: TargetJob) -> Iterator[None]:
        """Compute a target, give it to the group, and answer those who waited for it."""
        yield from job.steps()
        group = job.group
        if self._jobs.get(group.group_id) is not job:
            return  # there is another group by that name
        del self._jobs[group.group_id]
        if group.members:  # else everybody left, or it is a group of the other kind
            job.apply(self._changes)
            group.target_ms = self._backlog.now.mono_ms
        yield from self._answer_waiting(group)

    def _answer_waiting(self, group: ConsumerGroup) -> Iterator[None]:
        waiting = self._waiting.pop(group.group_id, [])
        later = [
            one
            for one in waiting
            if one.epoch > group.target_epoch and one.member_id in group.members
        ]
        if later:
            self._waiting[group.group_id] = later
        for one in waiting:
            if one not in later:
                yield
                self._answer_one(group, one, self._backlog.now)
        if later:
            yield
            self._is_target_behind(group, self._backlog.now)

    def _answer_one(self, group: ConsumerGroup, one: Waiting, now: Instant) -> None:
        asker = one.beat.asker
        try:
            member = group.members.get(one.member_id)
            if member is None:
                raise unknown_member(group.group_id, one.member_id)
            moved = self._reconcile(group, member, one.beat.owned, now)
        except RefusedError as refusal:
            self._outbox.answer(asker, refused_heartbeat(refusal))
            return
        self.extend_session(group, moved, now)
        answer = self._answer_to(group, moved, is_told_all=True)
        self._outbox.answer_when_committed(asker, answer)

    def take_waiting(self, group_id: str | None = None) -> Iterator[Asker]:
        """Yield those who wait for a target, of one group or of all, and forget them."""
        for each in list(self._waiting) if group_id is None else [group_id]:
            for one in self._waiting.pop(each, []):
                yield one.beat.asker

    # ---- topics

    def on_topics(self, group: ConsumerGroup, changed: frozenset[str], now: Instant) -> None:
        """Topics came, went or grew: what the group has of them is shared out again."""
        is_touched = not changed.isdisjoint(group.subscribed_topics())
        if self._resolve(group, now) or is_touched:
            self._raise_epoch(group)

    def _refresh_readers(self, group: ConsumerGroup, now: Instant) -> bool:
        """Forget subscribers by regexes that were silent; return whether more may be seen so."""
        is_first = not group.readers_due_ms
        session_ms = self._settings(group.group_id).session_timeout_ms
        interval_ms = max(self._config.consumer_regex_refresh_interval_ms, session_ms)
        group.readers_due_ms = now.mono_ms + interval_ms
        if is_first:
            return False
        # Each is looked through: the first that forgets one must not spare the others.
        return sum(readers.forget_silent() for readers in group.readers.values()) > 0

    def _resolve(self, group: ConsumerGroup, now: Instant) -> bool:
        """Bring what the group's regexes mean up to date; return whether other topics are meant."""
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

    def _resolved(self, regex: str) -> Resolved | None:
        try:
            return self._topics.resolve(regex)
        except RefusedError:
            return None  # another coordinator took it in; what it found stays

    # ---- time

    def resume(self, group: ConsumerGroup, now: Instant) -> None:
        """Go on with a group that was loaded: every timer begins again."""
        self.restart_sessions(group, now)
        if group.members and (
            self._resolve(group, now) or self._hash_of(group) != group.metadata_hash
        ):
            self._raise_epoch(group)

    def restart_sessions(self, group: ConsumerGroup, now: Instant) -> None:
        """Count nobody's silence so far, and nobody's slowness."""
        for member in group.members.values():
            self.extend_session(group, member, now)
            self._time_revocation(group, member, now)

    def extend_session(self, group: ConsumerGroup, member: ConsumerMember, now: Instant) -> None:
        """A member has given a sign of life."""
        if member.classic is None:
            timeout_ms = self._settings(group.group_id).session_timeout_ms
        else:
            timeout_ms = member.classic.session_timeout_ms
        session = TimerName(group.group_id, TimerKind.SESSION, member.member_id)
        self._timers.set(session, now.mono_ms + timeout_ms)

    def cancel_timers(self, group: ConsumerGroup, member_id: str) -> None:
        """A member is gone, and all that was waited for of it."""
        for kind in TimerKind:
            self._timers.cancel(TimerName(group.group_id, kind, member_id))


def _hash_of(names: frozenset[str], image: MetadataImage) -> int:
    topics = [
        f"{topic.name} {topic.id} {len(topic.partitions)}"
        for name in sorted(names)
        if (topic := image.topic(name)) is not None
    ]
    if not topics:
        return 0
    digest = hashlib.blake2b("\n".join(topics).encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def _described(member: ConsumerMember, beat: MemberHeartbeat) -> ConsumerMember:
    """Return the member as the heartbeat describes it; what it does not say is as it was."""
    request = beat.request
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    if beat.is_short and member.client == beat.client and member.classic is None:
        return member
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client=beat.client,
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
    """Return the answer to a heartbeat that was refused."""
    return ConsumerGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.message)


def _answered(assigned: Assignment) -> AnsweredAssignment:
    return AnsweredAssignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(assigned[topic_id]))
            for topic_id in sorted(assigned)
        ]
    )
