"""Handles requests to share groups (KIP-932) in one shard of the group coordinator. Pure."""

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

from ottla.broker.coordinators.backlog import Backlog
from ottla.broker.coordinators.effects import Instant, Outbox, Responder
from ottla.broker.coordinators.share_persister import SharePartitionKey
from ottla.broker.coordinators.timers import Timers
from ottla.broker.groups.consumer.consumer_member import JOINING_EPOCH
from ottla.broker.groups.consumer.topic_view import TopicView
from ottla.broker.groups.coordinated_group import CoordinatedGroup
from ottla.broker.groups.group_kind import GroupKind
from ottla.broker.groups.share.partition_states import Codes, PartitionStates, SharePorts
from ottla.broker.groups.share.share_changes import ShareChanges
from ottla.broker.groups.share.share_group import SHARE, ShareGroup
from ottla.broker.groups.share.share_partitions import Initialization
from ottla.broker.groups.share.share_rebalance import (
    NewOffset,
    ShareHeartbeat,
    ShareRebalancer,
    refused_share_heartbeat,
)
from ottla.broker.groups.share.share_records import SHARE_GROUP_KEYS
from ottla.broker.groups.share.share_records import replay as replay_share
from ottla.broker.groups.timer_names import TimerName
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import ZERO_UUID
from ottla.model.settings.groups import GroupConfig
from ottla.model.settings.share_groups import ShareGroupSettings
from ottla.wire.codec_types import Message
from ottla.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from ottla.wire.messages.share_group_metadata_key import ShareGroupMetadataKey


class DeletedOffsets(NamedTuple):
    """Outcome of deleting a share group's offsets in one topic."""

    name: str
    topic_id: UUID
    code: ErrorCode
    reason: str | None = None


class ShareGroups(GroupKind[ShareGroup]):
    """Share groups of a group coordinator's shard, their changes, and the requests about their
    durable states."""

    keys: ClassVar[tuple[type[Message], ...]] = SHARE_GROUP_KEYS
    type: ClassVar[str] = SHARE
    has_offsets: ClassVar[bool] = False

    def __init__(
        self,
        groups: MutableMapping[str, CoordinatedGroup],
        outbox: Outbox,
        *,
        config: GroupConfig,
        timers: Timers[TimerName],
        topics: TopicView,
        backlog: Backlog,
        settings: Callable[[str], ShareGroupSettings],
        record_bytes_max: Callable[[], int],
        ports: SharePorts | None,
    ) -> None:
        super().__init__(groups, outbox)
        self._topics = topics
        self._changes = ShareChanges(outbox, record_bytes_max)
        self._states = PartitionStates(outbox, ports)
        self._rebalancer = ShareRebalancer(
            config,
            timers,
            self._changes,
            topics,
            backlog,
            outbox,
            self._states,
            settings=settings,
        )

    # ---- groups

    def delete(self, group: ShareGroup) -> None:
        """Delete an empty share group and its records."""
        del self._groups[group.group_id]
        self._changes.delete(group)

    def prepare_deletion(
        self, group: ShareGroup, responder: Responder, delete_again: Callable[[], None]
    ) -> bool:
        """Return True if an empty share group can be deleted now. Otherwise, start to delete its
        durable states and return False."""
        topic_ids = group.partitions.topic_ids()
        if not topic_ids:
            return True

        def on_codes(codes: Codes | ErrorCode) -> None:
            code = codes if isinstance(codes, ErrorCode) else _first_error(codes)
            if code is ErrorCode.NONE:
                delete_again()
            else:
                responder(code)

        self._rebalancer.begin_deletion(group, topic_ids, on_codes)
        return False

    @property
    def rebalance_count(self) -> int:
        """Total number of increments of group epochs in this shard, over all share groups."""
        return self._changes.rebalance_count

    # ---- the log

    def replay(self, key: Any, value: Message | None) -> None:
        """Apply one record of a share group from the log."""
        group = self.find(key.group_id)
        if isinstance(key, ShareGroupMetadataKey) and value is None:
            if group is not None:
                del self._groups[key.group_id]
        elif group is not None:
            replay_share(group, key, value)
        elif value is not None:
            group = ShareGroup(key.group_id)
            self._groups[key.group_id] = group
            replay_share(group, key, value)

    def resume(self, group: ShareGroup, now: Instant) -> int:
        """Start to serve a share group whose records were loaded. Returns its number of members and
        topics, as a measure of the cost."""
        self._rebalancer.resume(group, now)
        return len(group.members) + len(group.subscribed_topics())

    # ---- time and topics

    def on_timer(self, group: ShareGroup, name: TimerName, now: Instant) -> None:
        """Handle an expired deadline of a share group or of one of its members."""
        self._rebalancer.on_timer(group, name, now)

    def restart_sessions(self, group: ShareGroup, now: Instant) -> None:
        """Restart the session timeout of every member of a share group."""
        self._rebalancer.restart_sessions(group, now)

    def on_topics(self, group: ShareGroup, changed: frozenset[str], now: Instant) -> int:
        """Apply changes of topics to a share group. Returns the number of entries that were
        checked, as a measure of the cost."""
        self._rebalancer.on_topics(group, changed, now)
        return 1 + len(group.partitions.topic_ids())

    def take_waiting(self) -> Iterator[Responder]:
        """Remove and yield the callbacks of requests that wait for a target assignment."""
        return self._rebalancer.take_waiting()

    # ---- requests of this protocol

    def handle_heartbeat(self, heartbeat: ShareHeartbeat, now: Instant) -> None:
        """Handle a ShareGroupHeartbeat request. Passes a response with the member's epoch and
        assignment to the request's responder."""
        try:
            answer = self._heartbeat(heartbeat, now)
        except RefusedError as refusal:
            self._outbox.answer(heartbeat.responder, refused_share_heartbeat(refusal))
        else:
            if answer is not None:
                self._outbox.answer_when_committed(heartbeat.responder, answer)

    def _heartbeat(
        self, heartbeat: ShareHeartbeat, now: Instant
    ) -> ShareGroupHeartbeatResponse | None:
        request = heartbeat.request
        if request.member_epoch < JOINING_EPOCH:
            return self._rebalancer.leave(self.existing(request.group_id), request)
        if request.member_epoch != JOINING_EPOCH and request.group_id not in self._groups:
            reason = f"Share group {request.group_id} not found."
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, reason)
        if request.member_epoch != JOINING_EPOCH or request.group_id in self._groups:
            group = self.existing(request.group_id)
        else:
            group = ShareGroup(request.group_id)
            self._rebalancer.check_first(group, heartbeat)
            self._groups[request.group_id] = group
        return self._rebalancer.heartbeat(group, heartbeat, now)

    def existing(self, group_id: str) -> ShareGroup:
        """Return a share group. Raises RefusedError if no share group has this id."""
        group = self.find(group_id)
        if group is None and group_id in self._groups:
            reason = f"Group {group_id} is not a share group."
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, reason)
        if group is None:
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    # ---- offsets of share partitions

    def alter_offsets(
        self, group_id: str, wanted: Sequence[NewOffset], responder: Responder
    ) -> None:
        """Set the start offsets of a share group for partitions that exist. Creates the group if it
        does not exist. `responder` is called with an error code for each partition, or with a
        RefusedError."""
        try:
            if group_id in self._groups:
                group = self._empty(group_id)
            else:
                group = self._groups[group_id] = ShareGroup(group_id)
        except RefusedError as refusal:
            self._outbox.answer(responder, refusal)
            return
        self._rebalancer.alter_offsets(group, wanted, responder)

    def delete_offsets(self, group_id: str, names: Sequence[str], responder: Responder) -> None:
        """Delete a share group's durable states of the topics in `names`. `responder` is called
        with a `DeletedOffsets` for each topic, or with a RefusedError."""
        try:
            group = self._empty(group_id)
        except RefusedError as refusal:
            self._outbox.answer(responder, refusal)
            return
        found, topic_ids = [], []
        for name in names:
            topic = self._topics.image.topic(name)
            if topic is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                reason = "This server does not host this topic-partition."
                found.append(DeletedOffsets(name, ZERO_UUID, code, reason))
            elif topic.id not in group.partitions.topic_ids():
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                reason = "There is no offset information to delete."
                found.append(DeletedOffsets(name, topic.id, code, reason))
            else:
                topic_ids.append(topic.id)
                found.append(DeletedOffsets(name, topic.id, ErrorCode.NONE))

        def on_codes(codes: Codes | ErrorCode) -> None:
            if isinstance(codes, ErrorCode):
                responder(codes)
                return
            failed: dict[UUID, ErrorCode] = {}
            for key, code in zip(keys, codes, strict=True):
                if code is not ErrorCode.NONE:
                    failed.setdefault(key.topic_id, code)
            responder([one._replace(code=failed.get(one.topic_id, one.code)) for one in found])

        if topic_ids:
            keys = self._rebalancer.begin_deletion(group, topic_ids, on_codes)
        else:
            self._outbox.answer(responder, found)

    def _empty(self, group_id: str) -> ShareGroup:
        """Return a share group that has no members. Raises RefusedError if the group does not exist
        or has members."""
        group = self.existing(group_id)
        if group.members:
            raise RefusedError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
        return group

    # ---- outcomes of requests to share coordinators

    def on_initialized(
        self, group_id: str, wanted: Sequence[Initialization], codes: Codes, now: Instant
    ) -> None:
        """Handle the share coordinators' responses to requests that initialise durable states of
        share partitions."""
        group = self.find(group_id)
        if group is not None:
            self._rebalancer.on_initialized(group, wanted, codes, now)

    def on_reset(
        self,
        group_id: str,
        wanted: Sequence[Initialization],
        codes: Codes,
        responder: Responder,
        now: Instant,
    ) -> None:
        """Handle the share coordinators' responses to requests that change start offsets of share
        partitions. `responder` is called with an error code for each partition."""
        group = self.find(group_id)
        if group is not None:
            self._rebalancer.on_reset(group, wanted, codes)
        self._outbox.answer_when_committed(responder, codes)

    def on_deleted(
        self,
        group_id: str,
        keys: Sequence[SharePartitionKey],
        codes: Codes,
        responder: Responder,
        now: Instant,
    ) -> None:
        """Handle the share coordinators' responses to requests that delete durable states of share
        partitions. `responder` is called with an error code for each partition."""
        group = self.find(group_id)
        if group is not None:
            self._rebalancer.on_deleted(group, keys, codes, now)
        self._outbox.answer_when_committed(responder, codes)

    # ---- offsets of consumers, which share groups do not have

    def check_fetch(self, group: ShareGroup, member_id: str | None, member_epoch: int) -> None:
        """Raise RefusedError, because members of share groups have no committed offsets to
        fetch."""
        raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND)


def _first_error(codes: Codes) -> ErrorCode:
    return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
