"""Handles requests to groups of the consumer protocol (KIP-848) in one shard of the group
coordinator. Pure.

A group may also have members of the classic protocol. The first ConsumerGroupHeartbeat upgrades a
classic group. The group is downgraded when its last member of the consumer protocol leaves.
group.consumer.migration.policy permits these changes.
"""

from collections.abc import Callable, Iterator, MutableMapping, Sequence, Set
from typing import Any, ClassVar

from ottla.broker.coordinators.backlog import Backlog
from ottla.broker.coordinators.effects import Instant, Outbox, Responder
from ottla.broker.coordinators.timers import Timers
from ottla.broker.groups.classic.classic_group import ClassicGroup
from ottla.broker.groups.classic.classic_groups import ClassicGroups
from ottla.broker.groups.classic.rebalance import Join
from ottla.broker.groups.consumer.consumer_changes import ConsumerChanges
from ottla.broker.groups.consumer.consumer_group import CONSUMER, ConsumerGroup
from ottla.broker.groups.consumer.consumer_member import JOINING_EPOCH
from ottla.broker.groups.consumer.consumer_rebalance import (
    ConsumerRebalancer,
    MemberHeartbeat,
    refused_heartbeat,
)
from ottla.broker.groups.consumer.consumer_records import CONSUMER_GROUP_KEYS
from ottla.broker.groups.consumer.consumer_records import replay as replay_consumer
from ottla.broker.groups.consumer.mixed_group import MixedGroups
from ottla.broker.groups.consumer.topic_view import TopicView
from ottla.broker.groups.coordinated_group import CoordinatedGroup
from ottla.broker.groups.group_kind import GroupKind
from ottla.broker.groups.offsets.commit_rules import (
    check_consumer_commit,
    check_consumer_fetch,
    check_consumer_transactional_commit,
)
from ottla.broker.groups.timer_names import TimerName
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.group_overrides import GroupSettings
from ottla.model.settings.groups import GroupConfig
from ottla.wire.codec_types import Message
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.leave_group_request import MemberIdentity
from ottla.wire.messages.offset_commit_request import OffsetCommitRequest
from ottla.wire.messages.sync_group_request import SyncGroupRequest
from ottla.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequest


class ConsumerGroups(GroupKind[ConsumerGroup]):
    """Consumer groups of a coordinator shard, their changes, and the computation of their target
    assignments."""

    keys: ClassVar[tuple[type[Message], ...]] = CONSUMER_GROUP_KEYS
    type: ClassVar[str] = CONSUMER

    def __init__(
        self,
        groups: MutableMapping[str, CoordinatedGroup],
        outbox: Outbox,
        classics: ClassicGroups,
        *,
        config: GroupConfig,
        timers: Timers[TimerName],
        topics: TopicView,
        backlog: Backlog,
        settings: Callable[[str], GroupSettings],
        new_id: Callable[[], str],
        record_bytes_max: Callable[[], int],
    ) -> None:
        super().__init__(groups, outbox)
        self._classics = classics
        self._changes = ConsumerChanges(outbox, record_bytes_max)
        self._rebalancer = ConsumerRebalancer(
            config,
            timers,
            self._changes,
            topics,
            backlog,
            outbox,
            settings=settings,
            new_id=new_id,
            downgrade=self._downgrade,
        )
        self._mixed = MixedGroups(
            config, timers, outbox, self._changes, self._rebalancer, topics, new_id=new_id
        )

    # ---- groups

    def delete(self, group: ConsumerGroup) -> None:
        """Delete an empty consumer group and its records."""
        del self._groups[group.group_id]
        self._changes.delete(group)

    @property
    def rebalance_count(self) -> int:
        """Total number of increments of group epochs in this shard, over all consumer groups."""
        return self._changes.rebalance_count

    # ---- the log

    def replay(self, key: Any, value: Message | None) -> None:
        """Apply one record of a consumer group from the log."""
        group = self.find(key.group_id)
        if isinstance(key, ConsumerGroupMetadataKey) and value is None:
            if group is not None:
                del self._groups[key.group_id]
        elif group is not None:
            replay_consumer(group, key, value)
        elif value is not None:
            # The group so far had only offsets, or was of another kind.
            group = ConsumerGroup(key.group_id)
            self._groups[key.group_id] = group
            replay_consumer(group, key, value)

    def resume(self, group: ConsumerGroup, now: Instant) -> int:
        """Start to serve a consumer group whose records were loaded. Returns its number of members
        and topics, as a measure of the cost."""
        self._rebalancer.resume(group, now)
        return len(group.members) + len(group.subscribed_topics())

    # ---- time and topics

    def on_timer(self, group: ConsumerGroup, name: TimerName, now: Instant) -> None:
        """Handle an expired deadline of a consumer group or of one of its members."""
        self._rebalancer.on_timer(group, name, now)

    def restart_sessions(self, group: ConsumerGroup, now: Instant) -> None:
        """Restart the session timeout of every member of a consumer group."""
        self._rebalancer.restart_sessions(group, now)

    def on_topics(self, group: ConsumerGroup, changed: frozenset[str], now: Instant) -> int:
        """Apply changes of topics to a consumer group. Returns the number of entries that were
        checked, as a measure of the cost."""
        if not group.members:
            return 0
        epoch = group.group_epoch
        self._rebalancer.on_topics(group, changed, now)
        touched = 0 if group.group_epoch == epoch else len(group.subscribed_topics())
        return 1 + len(group.members) + touched

    def used_regexes(self, group: ConsumerGroup) -> Iterator[str]:
        """Yield the regular expressions to which the members of a consumer group subscribe."""
        for member in group.members.values():
            if member.subscribed_regex:
                yield member.subscribed_regex

    def take_waiting(self) -> Iterator[Responder]:
        """Remove and yield the callbacks of requests that wait for a target assignment."""
        return self._rebalancer.take_waiting()

    # ---- requests of this protocol

    def handle_heartbeat(self, heartbeat: MemberHeartbeat, now: Instant) -> None:
        """Handle a ConsumerGroupHeartbeat request. Passes a response with the member's epoch and
        assignment to the request's responder."""
        try:
            answer = self._heartbeat(heartbeat, now)
        except RefusedError as refusal:
            self._outbox.answer(heartbeat.responder, refused_heartbeat(refusal))
        else:
            if answer is not None:
                self._outbox.answer_when_committed(heartbeat.responder, answer)

    def _heartbeat(
        self, heartbeat: MemberHeartbeat, now: Instant
    ) -> ConsumerGroupHeartbeatResponse | None:
        request = heartbeat.request
        group_id = request.group_id
        group = self.find(group_id)
        if request.member_epoch < JOINING_EPOCH:
            if group is None:
                raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            return self._rebalancer.leave(group, request, now)
        if group is not None:
            return self._rebalancer.heartbeat(group, heartbeat, now)
        is_joining = request.member_epoch == JOINING_EPOCH
        old = self._classics.find(group_id)
        is_taken = group_id in self._groups
        if is_taken and not (is_joining and old is not None and self._may_replace(old)):
            raise RefusedError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group."
            )
        if not is_joining:
            raise RefusedError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found."
            )
        return self._begin_group(old, heartbeat, now)

    def _may_replace(self, old: ClassicGroup) -> bool:
        return old.is_empty or self._mixed.may_upgrade(old)

    def _begin_group(
        self, old: ClassicGroup | None, heartbeat: MemberHeartbeat, now: Instant
    ) -> ConsumerGroupHeartbeatResponse | None:
        """Create a consumer group for its first member, or upgrade a classic group to the consumer
        protocol. Returns the response to the member's heartbeat, or None if the response is sent
        later."""
        request = heartbeat.request
        group = ConsumerGroup(request.group_id)
        self._rebalancer.check_first(group, heartbeat)
        if old is not None and request.instance_id not in old.static_members:
            self._rebalancer.check_room(len(old.members))
        if old is not None:
            self._classics.end_for_conversion(old)
            if old.members:
                group = self._mixed.upgraded(old)
                self._rebalancer.restart_sessions(group, now)
        self._groups[group.group_id] = group
        return self._rebalancer.heartbeat(group, heartbeat, now)

    def _downgrade(self, group: ConsumerGroup, leaving: Set[str], now: Instant) -> bool:
        """Downgrade a consumer group to a classic group if only members of the classic protocol
        remain after the members in `leaving` have left. Returns True if the group was
        downgraded."""
        if not self._mixed.may_downgrade(group, leaving):
            return False
        classic = self._mixed.downgraded(group, leaving, now)
        for responder in self._rebalancer.take_waiting(group.group_id):
            self._outbox.answer(responder, ErrorCode.UNKNOWN_MEMBER_ID)
        self._classics.take_over(classic, now)
        return True

    # ---- requests of the classic protocol

    def join(self, group: ConsumerGroup, join: Join, now: Instant) -> None:
        """Handle a JoinGroup request of the classic protocol to a consumer group. An empty group
        becomes a classic group."""
        if not group.members:
            self.delete(group)
            self._classics.join_first(join, now)
            return
        self._mixed.join(group, join, now)
        if self._mixed.may_downgrade(group):
            self._downgrade(group, frozenset(), now)

    def sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, responder: Responder, now: Instant
    ) -> None:
        """Handle a SyncGroup request from a member that uses the classic protocol."""
        self._mixed.sync(group, request, responder, now)

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, now: Instant) -> ErrorCode:
        """Handle a Heartbeat request from a member that uses the classic protocol. Returns the
        error code of the response."""
        return self._mixed.heartbeat(group, request, now)

    def leave(
        self, group: ConsumerGroup, members: Sequence[MemberIdentity], now: Instant
    ) -> list[ErrorCode]:
        """Handle a LeaveGroup request to a consumer group. Returns an error code for each
        member."""
        return self._mixed.leave(group, members, now)

    # ---- offsets

    def check_commit(
        self, group: ConsumerGroup, request: OffsetCommitRequest, version: int
    ) -> None:
        """Raise RefusedError if the epoch in an OffsetCommit request is not the current epoch of
        the committing member."""
        check_consumer_commit(group, request, version)

    def check_transactional_commit(
        self, group: ConsumerGroup, request: TxnOffsetCommitRequest, version: int
    ) -> None:
        """Raise RefusedError if a TxnOffsetCommit request names a member with an epoch other than
        the member's current epoch."""
        check_consumer_transactional_commit(group, request, version)

    def check_fetch(self, group: ConsumerGroup, member_id: str | None, member_epoch: int) -> None:
        """Raise RefusedError if an OffsetFetch request names a member with an epoch other than the
        member's current epoch."""
        check_consumer_fetch(group, member_id, member_epoch)
