"""Handles requests to the groups of one partition of `__consumer_offsets` while this broker leads
the partition. Pure.

Each method accepts a request and the time. `take_effects` returns the resulting records and
responses. A request changes the groups in memory at once, and its records are written afterwards.
`replay` makes the same changes when a log is loaded. A response that depends on a write is sent
when the write is committed. Therefore no client learns of a change that is lost with this leader.

Waiting JoinGroup and SyncGroup requests, and session timeouts, are only in memory. After a change
of leader the sessions restart, and the clients of waiting requests must retry.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

from ottla.broker.coordinators.backlog import Backlog
from ottla.broker.coordinators.effects import (
    GroupEffects,
    Instant,
    Outbox,
    Responder,
)
from ottla.broker.coordinators.timers import Timers
from ottla.broker.groups.classic.classic_group import (
    CONSUMER_PROTOCOL,
)
from ottla.broker.groups.classic.classic_groups import ClassicGroups
from ottla.broker.groups.classic.rebalance import Join, Rebalancer
from ottla.broker.groups.consumer.consumer_groups import ConsumerGroups
from ottla.broker.groups.consumer.topic_view import TopicView
from ottla.broker.groups.coordinated_group import CoordinatedGroup
from ottla.broker.groups.group_kind import GroupKind
from ottla.broker.groups.group_records import NO_EXPIRY, read_record
from ottla.broker.groups.offsets.commit_rules import (
    TransactionalCommit,
    check_commit_of_no_group,
    check_transactional_commit_of_no_group,
    names_member,
)
from ottla.broker.groups.offsets.offset_retention import OffsetRetention
from ottla.broker.groups.offsets.offset_store import OffsetStore, SeparateBatch
from ottla.broker.groups.offsets.topic_commit import TopicCommit
from ottla.broker.groups.share.partition_states import SharePorts
from ottla.broker.groups.share.share_groups import ShareGroups
from ottla.broker.groups.timer_names import TimerName
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_PRODUCER_ID
from ottla.model.limits import INT64_MAX
from ottla.model.settings.group_overrides import GroupSettings
from ottla.model.settings.groups import GroupConfig
from ottla.node.network.steps import StepPace
from ottla.wire.messages.describe_groups_response import DescribedGroup
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.leave_group_request import MemberIdentity
from ottla.wire.messages.offset_commit_key import OffsetCommitKey
from ottla.wire.messages.offset_commit_request import OffsetCommitRequest
from ottla.wire.messages.offset_commit_value import OffsetCommitValue
from ottla.wire.messages.sync_group_request import SyncGroupRequest

NO_RETENTION = -1

REMOVAL_COST = 25
"""Cost of removing a member from a group, relative to the cost of one entry in a response. A
removal takes about a tenth of a millisecond."""


class GroupShard:
    """Groups of one partition of `__consumer_offsets`, and their committed offsets."""

    def __init__(
        self,
        config: GroupConfig,
        *,
        topics: TopicView,
        settings: Callable[[str], GroupSettings],
        new_id: Callable[[], str],
        record_bytes_max: Callable[[], int] = lambda: 1 << 20,
        share_ports: SharePorts | None = None,
    ) -> None:
        """Create a shard of the group coordinator without groups. `settings` returns the settings
        of one group, and `new_id` a unique text. If `share_ports` is None, the partitions of share
        groups are never initialised.

        No record larger than `record_bytes_max` is written.
        """
        self._config = config
        self._topics = topics
        self.groups: dict[str, CoordinatedGroup] = {}
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
        """True while the expired deadlines of groups are being handled in steps."""
        self._changed_topics: set[str] | None = None
        """Names of changed topics that the next pass over the groups applies, or None if no pass is
        scheduled."""
        rebalancer = Rebalancer(
            config,
            self._timers,
            self._outbox,
            new_id=new_id,
            record_bytes_max=record_bytes_max,
        )
        self.classics = ClassicGroups(self.groups, self._outbox, rebalancer)
        self.consumers = ConsumerGroups(
            self.groups,
            self._outbox,
            self.classics,
            config=config,
            timers=self._timers,
            topics=topics,
            backlog=self._backlog,
            settings=settings,
            new_id=new_id,
            record_bytes_max=record_bytes_max,
        )
        self.shares = ShareGroups(
            self.groups,
            self._outbox,
            config=config,
            timers=self._timers,
            topics=topics,
            backlog=self._backlog,
            settings=lambda group_id: settings(group_id).share,
            record_bytes_max=record_bytes_max,
            ports=share_ports,
        )
        kinds: tuple[GroupKind[Any], ...] = (self.consumers, self.classics, self.shares)
        self._kinds = {kind.type: kind for kind in kinds}
        self._kind_of_key = {key: kind for kind in kinds for key in kind.keys}

    def _kind_of(self, group: CoordinatedGroup) -> GroupKind[Any]:
        return self._kinds[group.type]

    # ---- effects, time and work

    def end_event(self) -> bool:
        """End an event. Returns whether all effects decided so far may be taken at the end of the
        event-loop iteration, together with those of later events."""
        if self._backlog.open or self._topics.queue:
            return False
        return self._outbox.end_lasting_event()

    def take_effects(self) -> GroupEffects:
        """Return and clear the effects (records, responses, deadlines) decided since the last
        call."""
        effects = self._outbox.take()
        if self._backlog.open or self._topics.queue:
            effects.has_work = True
        effects.next_deadline_ms = self.next_deadline_ms()
        return effects

    def next_deadline_ms(self) -> int | None:
        """Return the monotonic time in milliseconds at which `on_time` may have work, or None if no
        deadline is set."""
        return None if self._is_ending_overdue else self._timers.next_deadline_ms()

    def on_time(self, now: Instant) -> None:
        """Handle the groups' expired deadlines: at once, or in steps if their number is large."""
        if not self._is_ending_overdue:
            self._is_ending_overdue = True
            self._backlog.begin(self._end_overdue(), now)

    def _end_overdue(self) -> Iterator[None]:
        pace = StepPace()
        while True:
            now = self._backlog.now
            # Deadlines are handled one by one, since each may cancel another.
            name = next(self._timers.pop_due(now.mono_ms), None)
            if name is None:
                break
            self._end_one(name, now)
            self._outbox.end_event()
            if pace.is_due(REMOVAL_COST):
                yield
        self._is_ending_overdue = False

    def _end_one(self, name: TimerName, now: Instant) -> None:
        group = self.groups.get(name.group_id)
        if group is not None:
            self._kind_of(group).on_timer(group, name, now)

    @property
    def has_work(self) -> bool:
        """True if this shard of the group coordinator has unfinished work. The method `work` runs
        this work in steps."""
        return bool(self._backlog.open)

    def work(self, now: Instant) -> None:
        """Run one step of the unfinished work on groups, if any is left."""
        self._backlog.step(now)
        self._outbox.end_event()

    def on_topics(self, changed: frozenset[str], now: Instant) -> None:
        """Apply changes of topics to the groups that subscribe to the topics by name or by regular
        expression."""
        if self._changed_topics is not None:
            self._changed_topics |= changed
            return
        self._changed_topics = set(changed)
        self._backlog.begin(self._follow_topics(), now)

    def _follow_topics(self) -> Iterator[None]:
        """Apply the changes of topics to each group of the shard, in steps."""
        yield  # Other changes during this pause go into the same pass.
        changed, self._changed_topics = frozenset(self._changed_topics or ()), None
        pace = StepPace()
        for group in list(self.groups.values()):
            cost = self._kind_of(group).on_topics(group, changed, self._backlog.now)
            self._outbox.end_event()
            if cost and pace.is_due(cost):
                yield

    def restart_sessions(self, now: Instant) -> None:
        """Restart every member's session timeout, since this process was paused and read no
        heartbeats."""
        for group in self.groups.values():
            self._kind_of(group).restart_sessions(group, now)

    def replay(
        self, key: bytes | None, value: bytes | None, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply one record of the log to the groups. Raises CorruptDataError if the record cannot
        be read.

        `producer_id` is the producer of the record's transaction, if there is one. The offsets of
        such a record stay pending until the transaction ends.
        """
        found = read_record(key, value)
        if found is None:
            return
        named, said = found
        kind = self._kind_of_key.get(type(named))
        if kind is not None:
            kind.replay(named, said)
        else:
            assert isinstance(named, OffsetCommitKey)
            assert said is None or isinstance(said, OffsetCommitValue)
            self.store.replay(named, said, producer_id)

    def resume(
        self, now: Instant, on_unfit: Callable[[str, Exception], None] | None = None
    ) -> None:
        """Start to serve the shard's groups after the whole log has been replayed.

        A group with inconsistent records starts without members; `on_unfit` is called with its id
        and the error.
        """
        for _ in self.resume_in_steps(lambda: now, on_unfit):
            pass

    def resume_in_steps(
        self, now: Callable[[], Instant], on_unfit: Callable[[str, Exception], None] | None
    ) -> Iterator[None]:
        """Start to serve the shard's groups in steps, in the same way as `resume`. No request may
        be served before the last step."""
        pace = StepPace()
        for group_id in self.store.group_ids:
            group = self.groups.get(group_id)
            # Release 0.2.0 skips records of share groups, and may have stored offsets under the id
            # of one.  Offsets that were acknowledged must stay readable.
            if group is None or not self._kind_of(group).has_offsets:
                self.classics.make(group_id)
        for group in list(self.groups.values()):
            try:
                looked_at = self._kind_of(group).resume(group, now())
            except Exception as error:
                if on_unfit is None:
                    raise
                on_unfit(group.group_id, error)
                self.classics.make(group.group_id)
                looked_at = 0
            self._outbox.end_event()
            if pace.is_due(1 + looked_at):
                yield

    def resign(self) -> Iterator[Responder]:
        """Remove and yield the callbacks of waiting requests of all groups, because this broker no
        longer leads the partition."""
        for kind in self._kinds.values():
            yield from kind.take_waiting()

    # ---- requests of the classic protocol

    def join(self, join: Join, now: Instant) -> None:
        """Handle a JoinGroup request. Creates the group if it does not exist."""
        group = self.groups.get(join.request.group_id)
        if group is None:
            self.classics.join_first(join, now)
        else:
            self._kind_of(group).join(group, join, now)

    def sync(self, request: SyncGroupRequest, responder: Responder, now: Instant) -> None:
        """Handle a SyncGroup request. `responder` is called with the member's assignment."""
        group = self.groups.get(request.group_id)
        if group is None:
            self._outbox.answer(responder, ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            self._kind_of(group).sync(group, request, responder, now)

    def heartbeat(self, request: HeartbeatRequest, responder: Responder, now: Instant) -> None:
        """Handle a Heartbeat request to a group. `responder` is called with an error code."""
        group = self.groups.get(request.group_id)
        code = ErrorCode.UNKNOWN_MEMBER_ID
        if group is not None:
            code = self._kind_of(group).heartbeat(group, request, now)
        self._outbox.answer(responder, code)

    def leave(
        self, group_id: str, members: Sequence[MemberIdentity], responder: Responder, now: Instant
    ) -> None:
        """Handle a LeaveGroup request to a group. `responder` is called with an error code for each
        member."""
        group = self.groups.get(group_id)
        codes = [ErrorCode.UNKNOWN_MEMBER_ID] * len(members)
        if group is not None:
            codes = self._kind_of(group).leave(group, members, now)
        self._outbox.answer_when_committed(responder, codes)

    # ---- offsets

    def commit(
        self,
        request: OffsetCommitRequest,
        topics: Iterable[TopicCommit],
        responder: Responder,
        now: Instant,
        version: int,
    ) -> None:
        """Commit offsets of a group. `responder` is called with a list of error codes for each
        topic, in the order of the request."""
        if not self._may_commit(request, responder, now, version):
            return
        expire_ms = NO_EXPIRY
        if request.retention_time_ms != NO_RETENTION:
            expire_ms = min(now.wall_ms + request.retention_time_ms, INT64_MAX)
        codes: list[list[ErrorCode]] = []
        for commit in topics:
            codes.append(self.store.commit(commit, now.wall_ms, expire_ms))
        self._outbox.answer_when_committed(responder, codes)

    def _may_commit(
        self, request: OffsetCommitRequest, responder: Responder, now: Instant, version: int
    ) -> bool:
        """Return whether the member that a request names may commit offsets. If it may not, the
        request is answered with the error code."""
        group = self.groups.get(request.group_id)
        try:
            if group is None:
                check_commit_of_no_group(request, version)
                self.classics.make(request.group_id)
                return True
            kind = self._kinds[group.type]
            if not kind.has_offsets:
                raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND)
            if request.generation_id_or_member_epoch >= 0 or not group.is_empty:
                kind.check_commit(group, request, version)
        except RefusedError as refusal:
            self._outbox.answer(responder, refusal.code)
            return False
        kind.keep_alive(group, request.member_id, now)
        return True

    def offsets_in_transaction(
        self, commit: TransactionalCommit, topics: Iterable[TopicCommit], now: Instant
    ) -> SeparateBatch:
        """Return the batch of records with the offsets that a transaction commits for a group.

        Raises RefusedError if the committing member is not in the group.
        """
        request, version = commit.request, commit.version
        group_id = request.group_id
        group = self.groups.get(group_id)
        if group is None:
            check_transactional_commit_of_no_group(request, version)
            self.classics.make(group_id)
        else:
            kind = self._kind_of(group)
            if not kind.has_offsets:
                raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND)
            if names_member(request) and not (
                request.generation_id_or_member_epoch < 0 and group.is_empty
            ):
                kind.check_transactional_commit(group, request, version)
            kind.keep_alive(group, request.member_id, now)
        return self.store.commit_in_transaction(
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
        responder: Responder,
        *,
        member_id: str | None = None,
        member_epoch: int = -1,
        is_stable: bool = False,
    ) -> None:
        """Pass a group's committed offsets to `responder`, as tuples of topic, partition and
        committed offset or None. The tuples cover the partitions `wanted`, or all partitions if
        `wanted` is None.

        With `is_stable`, offsets that an open transaction may change are not returned.
        """
        try:
            if (group := self.groups.get(group_id)) is not None:
                self._kind_of(group).check_fetch(group, member_id, member_epoch)
        except RefusedError as refusal:
            self._outbox.answer(responder, refusal.code)
            return
        answer = self.store.find_all(group_id, wanted, is_stable=is_stable)
        self._outbox.answer_when_committed(responder, answer)

    def delete_offsets(
        self, group_id: str, wanted: Iterable[tuple[str, int]], responder: Responder
    ) -> None:
        """Delete a group's offsets of topics to which no member subscribes (KIP-496).

        `responder` is called with an error code for each partition. If the group does not exist, or
        may use any topic, `responder` is called with a single error code.
        """
        group = self.groups.get(group_id)
        if group is None:
            self._outbox.answer(responder, ErrorCode.GROUP_ID_NOT_FOUND)
            return
        is_empty = group.is_empty
        if not is_empty and group.protocol_type != CONSUMER_PROTOCOL:
            self._outbox.answer(responder, ErrorCode.NON_EMPTY_GROUP)
            return
        subscribed = frozenset[str]() if is_empty else group.subscribed_topics()
        codes = []
        for topic, index in wanted:
            if subscribed is None or topic in subscribed:
                codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
            else:
                self.store.drop(group_id, topic, index)
                codes.append(ErrorCode.NONE)
        self._outbox.answer_when_committed(responder, codes)

    def drop_offsets_without_topic(self, exists: Callable[[str, UUID], bool], now: Instant) -> None:
        """Delete the groups' committed offsets of topics that do not exist, or exist under another
        id."""
        self._backlog.begin(self._retention.drop_without_topic(exists), now)

    def expire_offsets(self, now: Instant) -> None:
        """Delete committed offsets that were unused for the retention time, and groups without
        offsets."""
        self._backlog.begin(self._retention.expire(now.wall_ms), now)

    # ---- whole groups

    def delete_group(
        self, group_id: str, responder: Responder, delete_again: Callable[[], None]
    ) -> None:
        """Delete an empty group with its offsets. `responder` is called with an error code.

        If the group has data outside this shard, that data is deleted first. Afterwards
        `delete_again` is called, which must call this method again.
        """
        group = self.groups.get(group_id)
        if group is None:
            self._outbox.answer_when_committed(responder, ErrorCode.GROUP_ID_NOT_FOUND)
        elif not group.is_empty:
            self._outbox.answer(responder, ErrorCode.NON_EMPTY_GROUP)
        elif self._kind_of(group).prepare_deletion(group, responder, delete_again):
            for topic, index in self.store.places_of(group_id):
                self.store.drop(group_id, topic, index)
            self._drop_group(group)
            self._outbox.answer_when_committed(responder, ErrorCode.NONE)

    def describe(self, group_id: str) -> DescribedGroup | None:
        """Return the DescribeGroups response of a group, or None if DescribeGroups does not
        describe groups of its kind."""
        group = self.groups.get(group_id)
        return None if group is None else self._kind_of(group).describe(group)

    def used_regexes(self) -> Iterator[str]:
        """Yield the regular expressions to which the members of the shard's groups subscribe."""
        for group in self.groups.values():
            yield from self._kind_of(group).used_regexes(group)

    def list_groups(self, states: frozenset[str], types: frozenset[str]) -> list[CoordinatedGroup]:
        """Return the groups of this shard with the given states and types (in lower case). An empty
        set selects all states or all types."""
        return [
            group
            for group in self.groups.values()
            if (not states or group.state_name.lower() in states)
            and (not types or group.type in types)
        ]

    def _drop_group(self, group: CoordinatedGroup) -> None:
        self._kind_of(group).delete(group)
