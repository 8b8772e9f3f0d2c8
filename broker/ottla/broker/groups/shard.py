"""The groups of one partition of `__consumer_offsets`, for as long as it is led here.  Pure.

A request and the time go in; records and answers come out (`take_effects`).  What is in the log
and what is in memory are brought together in two ways that meet: a log is loaded by `replay`, and
whatever is written later takes the same change at once.  An answer that says something of what is
written leaves when it is committed, so a change that is lost with this leader was told to nobody.

Who waits in a JoinGroup or SyncGroup, and every session, is here alone: after a change of leader
the sessions begin again, and who waited is told to come again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any
from uuid import UUID

from ottla.broker.groups.backlog import Backlog
from ottla.broker.groups.classic_group import (
    CONSUMER_PROTOCOL,
    ClassicGroup,
    GroupState,
    group_of,
)
from ottla.broker.groups.commit_rules import (
    TransactionalCommit,
    check_commit,
    check_fetch,
    check_transactional_commit,
)
from ottla.broker.groups.consumer_changes import ConsumerChanges
from ottla.broker.groups.consumer_group import ConsumerGroup
from ottla.broker.groups.consumer_member import JOINING_EPOCH
from ottla.broker.groups.consumer_rebalance import (
    ConsumerRebalancer,
    MemberHeartbeat,
    refused_heartbeat,
)
from ottla.broker.groups.consumer_records import CONSUMER_GROUP_KEYS
from ottla.broker.groups.consumer_records import replay as replay_consumer
from ottla.broker.groups.effects import Asker, GroupEffects, Instant, Outbox
from ottla.broker.groups.group_records import (
    NO_EXPIRY,
    GroupRecord,
    group_key,
    read_record,
)
from ottla.broker.groups.mixed_group import MixedGroups
from ottla.broker.groups.offset_retention import Group, OffsetRetention
from ottla.broker.groups.offset_store import OffsetStore, OwnBatch, TopicCommit
from ottla.broker.groups.rebalance import Join, Rebalancer, failed_join
from ottla.broker.groups.timer_names import TimerKind, TimerName
from ottla.broker.groups.timers import Timers
from ottla.broker.groups.topic_committer import RowsCommit
from ottla.broker.groups.topic_view import TopicView
from ottla.broker.network.steps import StepPace
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_PRODUCER_ID
from ottla.model.limits import INT64_MAX
from ottla.model.settings.group_overrides import GroupSettings
from ottla.model.settings.groups import GroupConfig
from ottla.wire.codec_types import Message
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from ottla.wire.messages.group_metadata_key import GroupMetadataKey
from ottla.wire.messages.group_metadata_value import GroupMetadataValue
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.leave_group_request import MemberIdentity
from ottla.wire.messages.offset_commit_key import OffsetCommitKey
from ottla.wire.messages.offset_commit_request import OffsetCommitRequest
from ottla.wire.messages.offset_commit_value import OffsetCommitValue
from ottla.wire.messages.sync_group_request import SyncGroupRequest

NO_RETENTION = -1

REMOVAL_COST = 25
"""What it costs to remove a member, counted as entries of an answer: a tenth of a millisecond."""


class GroupShard:
    """The groups of one partition and their offsets; owns both."""

    def __init__(
        self,
        config: GroupConfig,
        *,
        topics: TopicView,
        settings: Callable[[str], GroupSettings],
        new_id: Callable[[], str],
        record_bytes_max: Callable[[], int] = lambda: 1 << 20,
    ) -> None:
        """`settings` returns what one group goes by; `new_id` a text that never comes twice.

        No record above the size is written.
        """
        self._config = config
        self.groups: dict[str, Group] = {}
        self._outbox = Outbox()
        self._record_bytes_max = record_bytes_max
        self.store = OffsetStore(self._outbox, config.offset_metadata_bytes_max)
        self.offsets = self.store.committed
        self._timers: Timers[TimerName] = Timers()
        self._backlog = Backlog()
        self._retention = OffsetRetention(
            self.groups,
            self.store,
            retention_ms=config.offsets_retention_ms,
            drop_group=self._drop_group,
        )
        self._is_ending_overdue = False
        """Whether what is due is being worked off in steps."""
        self._changed_topics: set[str] | None = None
        """Of a pass over the groups that has not begun."""
        self._rebalancer = Rebalancer(
            config,
            self._timers,
            self._outbox,
            new_id=new_id,
            record_bytes_max=record_bytes_max,
        )
        self._changes = ConsumerChanges(self._outbox, record_bytes_max)
        self._consumers = ConsumerRebalancer(
            config,
            self._timers,
            self._changes,
            topics,
            self._backlog,
            self._outbox,
            settings=settings,
            new_id=new_id,
            downgrade=self._downgrade,
        )
        self._mixed = MixedGroups(
            config,
            self._timers,
            self._outbox,
            self._changes,
            self._consumers,
            topics,
            new_id=new_id,
        )

    # ---- what the driver does with it

    def take_effects(self) -> GroupEffects:
        """Return what was decided since the last time."""
        return self._outbox.take()

    @property
    def next_deadline_ms(self) -> int | None:
        """When `on_time` may have something to do, on the monotonic clock."""
        return None if self._is_ending_overdue else self._timers.next_deadline_ms

    def on_time(self, now: Instant) -> None:
        """End what has taken too long: all of it at once, or the rest of very much in steps."""
        if not self._is_ending_overdue:
            self._is_ending_overdue = True
            self._backlog.begin(self._end_overdue(), now)

    def _end_overdue(self) -> Iterator[None]:
        pace = StepPace()
        while True:
            now = self._backlog.now
            # What is due is looked at one by one: each may take another's reason away.
            name = next(self._timers.pop_due(now.mono_ms), None)
            if name is None:
                break
            self._end_one(name, now)
            self._outbox.end_event()
            if pace.is_due(REMOVAL_COST):
                yield
        self._is_ending_overdue = False

    def _end_one(self, name: TimerName, now: Instant) -> None:
        match self.groups.get(name.group_id), name.kind:
            case ClassicGroup() as group, TimerKind.SESSION:
                self._rebalancer.on_session_timer(group, name.member_id, now)
            case ClassicGroup() as group, TimerKind.JOIN:
                self._rebalancer.on_join_timer(group, now)
            case ClassicGroup() as group, TimerKind.SYNC:
                self._rebalancer.on_sync_timer(group, now)
            case ConsumerGroup() as group, _:
                self._consumers.on_timer(group, name, now)

    @property
    def has_work(self) -> bool:
        """Whether there is work to be done in steps."""
        return bool(self._backlog)

    def work(self, now: Instant) -> None:
        """Take one step of the work that takes longer than one turn may."""
        self._backlog.step(now)
        self._outbox.end_event()

    def on_topics(self, changed: frozenset[str], now: Instant) -> None:
        """Topics came, went or grew, or a regular expression was resolved."""
        if self._changed_topics is not None:
            self._changed_topics |= changed
            return
        self._changed_topics = set(changed)
        self._backlog.begin(self._follow_topics(), now)

    def _follow_topics(self) -> Iterator[None]:
        """Bring each group up to date."""
        yield  # others that change meanwhile go into the same pass
        changed, self._changed_topics = frozenset(self._changed_topics or ()), None
        pace = StepPace()
        for group in list(self.groups.values()):
            if not isinstance(group, ConsumerGroup) or not group.members:
                continue
            epoch = group.group_epoch
            self._consumers.on_topics(group, changed, self._backlog.now)
            self._outbox.end_event()
            touched = 0 if group.group_epoch == epoch else len(group.subscribed_topics())
            if pace.is_due(1 + len(group.members) + touched):
                yield

    def restart_sessions(self, now: Instant) -> None:
        """Begin every session again: this process stood still, and could hear nobody meanwhile."""
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                self._consumers.restart_sessions(group, now)
            else:
                self._rebalancer.restart_sessions(group, now)

    def replay(
        self, key: bytes | None, value: bytes | None, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Take in one record of the log; CorruptDataError when its bytes lie.

        `producer_id` is that of a record that belongs to a transaction.
        """
        found = read_record(key, value)
        if found is None:
            return
        named, said = found
        if isinstance(named, CONSUMER_GROUP_KEYS):
            self._replay_consumer(named, said)
        elif isinstance(named, GroupMetadataKey):
            assert said is None or isinstance(said, GroupMetadataValue)
            if said is not None:
                self.groups[named.group] = group_of(named.group, said)
            elif isinstance(self.groups.get(named.group), ClassicGroup):
                del self.groups[named.group]
        else:
            assert isinstance(named, OffsetCommitKey)
            assert said is None or isinstance(said, OffsetCommitValue)
            self.store.replay(named, said, producer_id)

    def _replay_consumer(self, named: Any, said: Message | None) -> None:
        group = self.groups.get(named.group_id)
        if isinstance(named, ConsumerGroupMetadataKey) and said is None:
            if isinstance(group, ConsumerGroup):
                del self.groups[named.group_id]
        elif isinstance(group, ConsumerGroup):
            replay_consumer(group, named, said)
        elif said is not None:
            # A group that was known by its offsets only, or is of the other kind now.
            group = self.groups[named.group_id] = ConsumerGroup(named.group_id)
            replay_consumer(group, named, said)

    def resume(
        self, now: Instant, on_unfit: Callable[[str, Exception], None] | None = None
    ) -> None:
        """Begin to serve, when all of the log has been replayed.

        A group that its records describe as none can be begins without members; `on_unfit` is
        called with its id.
        """
        for _ in self.resume_in_steps(lambda: now, on_unfit):
            pass

    def resume_in_steps(
        self, now: Callable[[], Instant], on_unfit: Callable[[str, Exception], None] | None
    ) -> Iterator[None]:
        """Do what `resume` does; nothing may be asked of it before the end."""
        pace = StepPace()
        for group_id in self.store.group_ids:
            self._find_or_make(group_id)
        for group in list(self.groups.values()):
            try:
                if isinstance(group, ConsumerGroup):
                    self._consumers.resume(group, now())
                    looked_at = len(group.members) + len(group.subscribed_topics())
                else:
                    self._rebalancer.resume(group, now())
                    looked_at = len(group.members)
            except Exception as error:
                if on_unfit is None:
                    raise
                on_unfit(group.group_id, error)
                self.groups[group.group_id] = ClassicGroup(group.group_id)
                looked_at = 0
            self._outbox.end_event()
            if pace.is_due(1 + looked_at):
                yield

    def resign(self) -> Iterator[Asker]:
        """Yield all that wait in a group: this leader is deposed."""
        yield from self._consumers.take_waiting()
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                continue  # who waits there waits for its target
            for member in group.members.values():
                for asker in (member.join_asker, member.sync_asker):
                    if asker is not None:
                        yield asker
                member.join_asker = member.sync_asker = None

    # ---- membership

    def join(self, join: Join, now: Instant) -> None:
        """Take somebody into a group, which is made for whoever comes for the first time."""
        request = join.request
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            if group.members:
                self._mixed.join(group, join, now)
                if self._mixed.may_downgrade(group):
                    self._downgrade(group, frozenset(), now)
                return
            self._drop_group(group)
            group = None
        if group is None:
            if request.member_id:
                code = ErrorCode.UNKNOWN_MEMBER_ID
                self._outbox.answer(join.asker, failed_join(code, request.member_id))
                return
            group = self.groups[request.group_id] = ClassicGroup(request.group_id)
        self._rebalancer.join(group, join, now)

    def sync(self, request: SyncGroupRequest, asker: Asker, now: Instant) -> None:
        """Bring or fetch the assignment of a generation."""
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            self._rebalancer.sync(group, request, asker, now)
        elif isinstance(group, ConsumerGroup):
            self._mixed.sync(group, request, asker, now)
        else:
            self._outbox.answer(asker, ErrorCode.UNKNOWN_MEMBER_ID)

    def heartbeat(self, request: HeartbeatRequest, asker: Asker, now: Instant) -> None:
        """Take a member's sign of life; the answer is a code."""
        group = self.groups.get(request.group_id)
        code = ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(group, ClassicGroup):
            code = self._rebalancer.heartbeat(group, request, now)
        elif isinstance(group, ConsumerGroup):
            code = self._mixed.heartbeat(group, request, now)
        self._outbox.answer(asker, code)

    def leave(
        self, group_id: str, members: Sequence[MemberIdentity], asker: Asker, now: Instant
    ) -> None:
        """Let members go; the answer is a code for each."""
        group = self.groups.get(group_id)
        codes = [ErrorCode.UNKNOWN_MEMBER_ID] * len(members)
        if isinstance(group, ClassicGroup):
            codes = self._rebalancer.leave(group, members, now)
        elif isinstance(group, ConsumerGroup):
            codes = self._mixed.leave(group, members, now)
        self._outbox.answer_when_committed(asker, codes)

    def consumer_heartbeat(self, beat: MemberHeartbeat, now: Instant) -> None:
        """Take what a member of the consumer protocol says; it is told where it stands."""
        try:
            answer = self._take_heartbeat(beat, now)
        except RefusedError as refusal:
            self._outbox.answer(beat.asker, refused_heartbeat(refusal))
        else:
            if answer is not None:
                self._outbox.answer_when_committed(beat.asker, answer)

    def _take_heartbeat(
        self, beat: MemberHeartbeat, now: Instant
    ) -> ConsumerGroupHeartbeatResponse | None:
        request = beat.request
        group_id = request.group_id
        group = self.groups.get(group_id)
        if request.member_epoch < JOINING_EPOCH:
            if not isinstance(group, ConsumerGroup):
                raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            return self._consumers.leave(group, request, now)
        if isinstance(group, ConsumerGroup):
            return self._consumers.heartbeat(group, beat, now)
        is_joining = request.member_epoch == JOINING_EPOCH
        if group is not None and not (
            is_joining and (group.is_empty or self._mixed.may_upgrade(group))
        ):
            raise RefusedError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group."
            )
        if not is_joining:
            raise RefusedError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found."
            )
        return self._begin_consumer_group(group, beat, now)

    def _begin_consumer_group(
        self, old: ClassicGroup | None, beat: MemberHeartbeat, now: Instant
    ) -> ConsumerGroupHeartbeatResponse | None:
        """Make a group for its first member; a classic one gives way to it, with who is in it."""
        request = beat.request
        group = ConsumerGroup(request.group_id)
        self._consumers.check_first(group, beat)
        if old is not None and request.instance_id not in old.static_members:
            self._consumers.check_room(len(old.members))
        if old is not None:
            self._rebalancer.let_go(old, ErrorCode.REBALANCE_IN_PROGRESS)
            self._outbox.write(GroupRecord(group_key(old.group_id), None))
            if old.members:
                group = self._mixed.upgraded(old)
                self._consumers.restart_sessions(group, now)
        self.groups[group.group_id] = group
        return self._consumers.heartbeat(group, beat, now)

    def _downgrade(self, group: ConsumerGroup, leaving: Set[str], now: Instant) -> bool:
        """Continue with the classic protocol if no member of the other stays."""
        if not self._mixed.may_downgrade(group, leaving):
            return False
        classic = self._mixed.downgraded(group, leaving, now)
        for asker in self._consumers.take_waiting(group.group_id):
            self._outbox.answer(asker, ErrorCode.UNKNOWN_MEMBER_ID)
        self.groups[group.group_id] = classic
        self._rebalancer.take_over(classic, now)
        return True

    # ---- offsets

    def commit(
        self,
        request: OffsetCommitRequest,
        topics: Iterable[TopicCommit],
        asker: Asker,
        now: Instant,
        *,
        version: int,
    ) -> None:
        """Keep offsets; the answer is a list of codes for each topic, in order."""
        if not self._lets(request, asker, now, version):
            return
        expire_ms = NO_EXPIRY
        if request.retention_time_ms != NO_RETENTION:
            expire_ms = min(now.wall_ms + request.retention_time_ms, INT64_MAX)
        commit, group_id, wall_ms = self.store.commit, request.group_id, now.wall_ms
        codes: list[list[ErrorCode]] = []
        for topic in topics:
            codes.append([])
            for one in topic.partitions:
                codes[-1].append(commit(group_id, topic, one, wall_ms, expire_ms))
        self._outbox.answer_when_committed(asker, codes)

    def commit_rows(self, commit: RowsCommit, asker: Asker, now: Instant) -> None:
        """Keep offsets of one topic; the answer is a list of codes, in order."""
        if self._lets(commit.committer.request, asker, now, commit.version):
            codes = self.store.commit_rows(commit.committer, commit.rows, now.wall_ms)
            self._outbox.answer_when_committed(asker, codes)

    def _lets(self, request: OffsetCommitRequest, asker: Asker, now: Instant, version: int) -> bool:
        """Return whether a member may commit offsets; answer the request where it may not."""
        group = self.groups.get(request.group_id)
        try:
            check_commit(group, request, version)
        except RefusedError as refusal:
            self._outbox.answer(asker, refusal.code)
            return False
        if group is None:
            self._find_or_make(request.group_id)
        elif isinstance(group, ClassicGroup):
            self._rebalancer.keep_alive(group, request.member_id, now)
        return True

    def offsets_in_transaction(
        self, commit: TransactionalCommit, topics: Iterable[TopicCommit], now: Instant
    ) -> OwnBatch:
        """Return what is written of offsets that wait for the end of their transaction.

        Raises RefusedError if who commits is not in the group.
        """
        group_id = commit.request.group_id
        check_transactional_commit(self.groups.get(group_id), commit.request, commit.version)
        group = self._find_or_make(group_id)
        if isinstance(group, ClassicGroup):
            self._rebalancer.keep_alive(group, commit.request.member_id, now)
        return self.store.commit_in_transaction(
            group_id,
            topics,
            producer_id=commit.request.producer_id,
            producer_epoch=commit.request.producer_epoch,
            wall_ms=now.wall_ms,
            batch_bytes_max=self._record_bytes_max(),
        )

    def fetch_offsets(
        self,
        group_id: str,
        wanted: Iterable[tuple[str, int]] | None,
        asker: Asker,
        *,
        member_id: str | None = None,
        member_epoch: int = -1,
        is_stable: bool = False,
    ) -> None:
        """Answer with (topic, partition, offset or None) of what is wanted, or of all there is.

        `is_stable` asks for no offset that an open transaction may change.
        """
        try:
            check_fetch(self.groups.get(group_id), member_id, member_epoch)
        except RefusedError as refusal:
            self._outbox.answer(asker, refusal.code)
            return
        answer = self.store.find_all(group_id, wanted, is_stable=is_stable)
        self._outbox.answer_when_committed(asker, answer)

    def delete_offsets(
        self, group_id: str, wanted: Iterable[tuple[str, int]], asker: Asker
    ) -> None:
        """Forget offsets of topics that nobody in the group has subscribed (KIP-496).

        The answer is a code for each; the whole is refused where the group may use them all.
        """
        group = self.groups.get(group_id)
        if group is None:
            self._outbox.answer(asker, ErrorCode.GROUP_ID_NOT_FOUND)
            return
        is_empty = group.is_empty
        if not is_empty and group.protocol_type != CONSUMER_PROTOCOL:
            self._outbox.answer(asker, ErrorCode.NON_EMPTY_GROUP)
            return
        subscribed = frozenset[str]() if is_empty else group.subscribed_topics()
        codes = []
        for topic, index in wanted:
            if subscribed is None or topic in subscribed:
                codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
            else:
                self.store.drop(group_id, topic, index)
                codes.append(ErrorCode.NONE)
        self._outbox.answer_when_committed(asker, codes)

    def drop_offsets_without_topic(self, exists: Callable[[str, UUID], bool], now: Instant) -> None:
        """Forget what was committed for topics that are no more, or are others by the same name."""
        self._backlog.begin(self._retention.drop_without_topic(exists), now)

    def expire_offsets(self, now: Instant) -> None:
        """Forget offsets that nobody has used for the retention, and groups left with nothing."""
        self._backlog.begin(self._retention.expire(now.wall_ms), now)

    # ---- groups as a whole

    def delete_group(self, group_id: str, asker: Asker) -> None:
        """Delete a group that nobody is in, with its offsets; the answer is a code."""
        group = self.groups.get(group_id)
        if group is None:
            self._outbox.answer_when_committed(asker, ErrorCode.GROUP_ID_NOT_FOUND)
        elif not group.is_empty:
            self._outbox.answer(asker, ErrorCode.NON_EMPTY_GROUP)
        else:
            for topic, index in self.store.places_of(group_id):
                self.store.drop(group_id, topic, index)
            self._drop_group(group)
            self._outbox.answer_when_committed(asker, ErrorCode.NONE)

    @property
    def consumer_rebalance_count(self) -> int:
        """How often consumer groups have had their work shared out again."""
        return self._changes.rebalance_count

    def used_regexes(self) -> Iterator[str]:
        """Yield the regular expressions that members subscribe by."""
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                for member in group.members.values():
                    if member.subscribed_regex:
                        yield member.subscribed_regex

    def list_groups(self, states: frozenset[str], types: frozenset[str]) -> list[Group]:
        """Return the groups of these states and types (in lower case; all when none is named)."""
        return [
            group
            for group in self.groups.values()
            if (not states or group.state.value.lower() in states)
            and (not types or group.type in types)
        ]

    def _find_or_make(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id)
        return group

    def _drop_group(self, group: Group) -> None:
        del self.groups[group.group_id]
        if isinstance(group, ConsumerGroup):
            self._changes.delete(group)
            return
        self._rebalancer.forget(group)
        group.become(GroupState.DEAD, group.state_timestamp_ms)
        self._outbox.write(GroupRecord(group_key(group.group_id), None))
