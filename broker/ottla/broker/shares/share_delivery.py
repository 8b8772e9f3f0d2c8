"""Manages the share sessions and share partitions of a broker, for ShareFetch and ShareAcknowledge
(KIP-932).

Pure. The end of a session releases the records that its member has acquired in the session's
partitions. When the last session of a group on this broker ends, the group's share partitions are
dropped from memory.
"""

from collections.abc import Callable, Sequence
from uuid import UUID

from ottla.broker.coordinators.share_persister import SharePartitionKey
from ottla.broker.logs.fetch_read import check_readable
from ottla.broker.logs.leader_hints import LeaderEndpoint, endpoints_of
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.shares.acknowledgement_rules import AcknowledgedRange, checked_acks
from ottla.broker.shares.led_share import Answered, DeliveryPorts, LedShare, LedShares, Stage
from ottla.broker.shares.share_figures import ShareFigures
from ottla.broker.shares.share_sessions import (
    PartitionId,
    SessionKey,
    ShareSession,
    ShareSessionCache,
)
from ottla.model.errors import ErrorCode, RefusedError
from ottla.node.network.dispatch import Peer, RequestContext


class ShareTarget:
    """Topic partition that a share session fetches, with the loaded share partition."""

    __slots__ = ("id", "led")

    def __init__(self, partition_id: PartitionId) -> None:
        self.id = partition_id
        self.led: LedShare | None = None
        """Loaded share partition of this target, or None until a fetch has found it."""


Session = ShareSession[ShareTarget]


class ShareDelivery:
    """Share sessions of the members that fetch from a broker, and the share partitions that they
    use."""

    def __init__(
        self,
        *,
        table: PartitionTable,
        ports: DeliveryPorts,
        session_count_max: int,
        is_enabled: Callable[[], bool],
    ) -> None:
        """Create the sessions and share partitions of a broker, which are empty at first.
        `is_enabled` returns whether the cluster's `share.version` includes share groups."""
        self.table = table
        self.ports = ports
        self.figures = ShareFigures()
        self.shares = LedShares(ports, self.figures.note_load)
        self.sessions: ShareSessionCache[ShareTarget] = ShareSessionCache(session_count_max)
        self._is_enabled = is_enabled

    def refusal(self, group_id: str | None, member_id: str | None) -> ErrorCode:
        """Return the error code that refuses all share requests of this group and member, or NONE
        if the requests may be served."""
        if not self._is_enabled():
            return ErrorCode.UNSUPPORTED_VERSION
        if not group_id or not member_id:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def lock_duration_ms(self, group_id: str) -> int:
        """Return the duration of acquisition locks in a share group, in milliseconds."""
        return self.ports.settings_of(group_id).record_lock_duration_ms

    # ---- share partitions

    def led_share(self, context: RequestContext, key: SessionKey, target: ShareTarget) -> LedShare:
        """Return the share partition for one topic partition of a share session. If the share
        partition is not cached, it is loaded.

        Raises RefusedError if this broker does not lead the partition, or if the client may not
        read the topic. Also raises RefusedError if the share partition was dropped because of an
        error; the next fetch loads it again.
        """
        led = target.led
        if led is not None:
            if led.stage is not Stage.DROPPED:
                self._check_readable(context, led.partition)
                return led
            target.led = None
            if led.failure is not ErrorCode.NONE:
                raise RefusedError(led.failure)
        partition = self._find(context, target.id)
        partition.leader_log()
        share_key = SharePartitionKey(key.group_id, *target.id)
        is_cached = self.shares.get(share_key) is not None
        led = target.led = self.shares.open(share_key, partition)
        if is_cached:
            led.compare()
        return led

    def _find(self, context: RequestContext, partition_id: PartitionId) -> Partition:
        """Return the partition of a topic that has a replica on this broker.

        Raises RefusedError with TOPIC_AUTHORIZATION_FAILED if the client has no READ permission on
        the topic, even if the partition does not exist. Otherwise raises RefusedError if this
        broker has no replica of the partition.
        """
        try:
            partition = self.table.find_by_id(*partition_id)
        except RefusedError:
            name = self.table.topic_name(partition_id[0])
            if context.permissions is not None and name is not None:
                check_readable(context.permissions, name)
            raise
        self._check_readable(context, partition)
        return partition

    def _check_readable(self, context: RequestContext, partition: Partition) -> None:
        if context.permissions is not None:
            check_readable(context.permissions, partition.topic)

    def acknowledge(
        self,
        context: RequestContext,
        key: SessionKey,
        partition_id: PartitionId,
        batches: Sequence[AcknowledgedRange],
        on_done: Answered,
        *,
        is_renew_ack: bool,
    ) -> None:
        """Acknowledge records of one topic partition. The partition need not belong to the share
        session.

        `on_done` is called once: with an error code, or when the acknowledgements are durable.
        """

        def on_answer(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE:
                self.figures.failed_acknowledge_count += 1
            on_done(code)

        try:
            acks = checked_acks(batches, context.api_version, is_renew_ack=is_renew_ack)
            partition = self._find(context, partition_id)
            partition.leader_log()
            led = self.shares.get(SharePartitionKey(key.group_id, *partition_id))
            if led is None:
                raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        except RefusedError as refusal:
            on_answer(refusal.code)
            return

        def on_durable(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self.figures.note_acks(acks)
            on_answer(code)

        led.acknowledge(key.member_id, acks, on_durable)

    # ---- sessions

    def close(self, session: Session) -> None:
        """End a share session, and release the records that its member has acquired in its
        partitions."""
        self.sessions.close(session)
        self._release(session)

    def on_closed(self, peer: Peer) -> None:
        """End the share sessions of a client connection that was closed."""
        for session in self.sessions.close_connection(peer.connection_id):
            self._release(session)

    def _release(self, session: Session) -> None:
        group_id, member_id = session.key
        for partition_id in session.targets:
            led = self.shares.get(SharePartitionKey(group_id, *partition_id))
            if led is not None:
                led.release_member(member_id)
        if not self.sessions.has_group(group_id):
            self.shares.close_group(group_id)
            self.figures.by_group.pop(group_id, None)


class LeaderHints:
    """Current leaders of the partitions that a response refuses. The client can send its next
    requests to them."""

    def __init__(self, table: PartitionTable) -> None:
        self._table = table
        self._leaders: set[int] = set()

    def leader(self, topic_id: UUID, index: int) -> tuple[int, int]:
        """Return the id of the leader and the leader epoch of a partition, or (-1, -1) if they are
        unknown."""
        leader_id, leader_epoch = self._table.current_leader("", topic_id, index)
        self._leaders.add(leader_id)
        return leader_id, leader_epoch

    def endpoints(self, context: RequestContext) -> list[LeaderEndpoint]:
        """Return the endpoints, on the client's listener, of all leaders that `leader` has returned
        so far."""
        if not self._leaders:
            return []
        return endpoints_of(self._table.image, self._leaders, context.peer.listener_name)
