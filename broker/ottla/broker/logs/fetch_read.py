"""What a fetch asks for, and one partition of it: how far the asker may see, what it gets.

Pure; no record byte is touched.  A follower sees the whole log, a consumer what is committed, a
READ_COMMITTED consumer what lies below the last stable offset (row ST25).  A client that names the
epoch it fetched last is told where its log parts from ours (KIP-595's divergence) instead of being
given records that do not follow on its own.
"""

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.network.dispatch import Permissions
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.model.acls import AclOperation, ResourceType
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_EPOCH, Epoch, Offset
from ottla.storage.log import Log
from ottla.storage.slice import FileSlice
from ottla.wire.apis import FETCH_TOPIC_IDS_FROM
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest
from ottla.wire.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)

if TYPE_CHECKING:
    from ottla.broker.logs.fetch_session import FetchSession

REPLICA_STATE_FROM = 15
HINTS_FROM = 16
READ_COMMITTED = 1

NO_DIVERGENCE = EpochEndOffset()
NO_LEADER_HINT = LeaderIdAndEpoch()
NO_SNAPSHOT = SnapshotId()
NO_RECORDS = b""

READ_TOPIC = AclOperation.READ, ResourceType.TOPIC

PATIENT = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )
)
"""Refusals that do not end the wait for the other partitions: a client with one deleted topic
would else poll without pause."""

TargetKey = tuple[str | UUID, int]
"""A partition as the client names it: by topic name, or by topic id from Fetch 13 on."""


class FetchTarget:
    """One partition a client fetches: what it asks, and in a session what it was told last."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "is_asked",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "partition",
        "partition_bytes_max",
        "replica_high_watermark",
        "session",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: UUID, asked: FetchPartition, key: TargetKey) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = asked.partition
        self.key = key
        self.partition: Partition | None = None
        """Found once and kept until it is removed."""
        self.session: FetchSession | None = None
        self.told_high_watermark = -1
        self.told_log_start_offset = -1
        self.ask(asked)

    def ask(self, asked: FetchPartition) -> None:
        """Take in what the client asks of this partition from now on."""
        self.fetch_offset = asked.fetch_offset
        self.partition_bytes_max = asked.partition_max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.log_start_offset = asked.log_start_offset
        self.replica_high_watermark = asked.high_watermark
        self.is_asked = True
        """Named by the latest request, and not looked at for it yet."""

    def on_wake(self, key: Hashable) -> None:
        """Hear that something happened to the partition: it may have news."""
        if self.session is not None:
            self.session.note_event(self, key)

    def has_news(self, data: PartitionData) -> bool:
        """Return whether an incremental answer must hold this partition, and note what it tells."""
        records = data.records
        is_news = (
            (records is not None and len(records) > 0)
            or data.error_code != 0
            or data.high_watermark != self.told_high_watermark
            or data.log_start_offset != self.told_log_start_offset
            or data.diverging_epoch.epoch >= 0
        )
        # After an error the next answer without one must be told, whatever it says.
        self.told_high_watermark = -1 if data.error_code else data.high_watermark
        self.told_log_start_offset = data.log_start_offset
        return is_news


class FetchLimits:
    """What one request asks for, as far as it holds for all its partitions."""

    __slots__ = (
        "bytes_max",
        "bytes_min",
        "is_from_follower",
        "is_read_committed",
        "replica_epoch",
        "replica_id",
        "uses_topic_ids",
        "wants_hints",
        "whole_batches",
    )

    def __init__(self, request: FetchRequest, version: int, fetch_bytes_max: int) -> None:
        if version >= REPLICA_STATE_FROM:
            self.replica_id = request.replica_state.replica_id
            self.replica_epoch = request.replica_state.replica_epoch
        else:
            self.replica_id = request.replica_id
            self.replica_epoch = -1
        self.is_from_follower = self.replica_id >= 0
        self.bytes_max = min(request.max_bytes, fetch_bytes_max)
        self.bytes_min = min(request.min_bytes, fetch_bytes_max)
        self.is_read_committed = request.isolation_level == READ_COMMITTED
        self.uses_topic_ids = version >= FETCH_TOPIC_IDS_FROM
        self.wants_hints = version >= HINTS_FROM
        self.whole_batches = False
        """Whether no batch may be cut off: a client that is charged for it would pay twice."""


def asked_partitions(
    request: FetchRequest, uses_topic_ids: bool
) -> Iterator[tuple[TargetKey, str, UUID, FetchPartition]]:
    """Yield (key, topic name, topic id, what is asked) of every partition in a request."""
    for topic in request.topics:
        name: str | UUID = topic.topic_id if uses_topic_ids else topic.topic
        for asked in topic.partitions:
            yield (name, asked.partition), topic.topic, topic.topic_id, asked


def targets_of(request: FetchRequest, uses_topic_ids: bool) -> dict[TargetKey, FetchTarget]:
    """Return the targets of a full request; a partition named twice counts as asked last."""
    return {
        key: FetchTarget(topic, topic_id, asked, key)
        for key, topic, topic_id, asked in asked_partitions(request, uses_topic_ids)
    }


def check_readable(permissions: Permissions, topic: str) -> None:
    """Refuse a partition of a topic that the consumer may not read at the moment."""
    if not permissions.allows(*READ_TOPIC, topic):
        raise RefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


class Reading:
    """What one pass over a fetch's partitions found, in their order."""

    __slots__ = (
        "byte_count",
        "is_cold",
        "is_throttled",
        "is_urgent",
        "readable_count",
        "results",
        "throttled_byte_count",
    )

    def __init__(self) -> None:
        self.results: list[tuple[FetchTarget, PartitionData]] = []
        self.byte_count = 0
        self.is_urgent = False
        """Whether a partition has something the asker must hear now (an error, a divergence)."""
        self.readable_count = 0
        self.is_cold = False
        """Whether records of a partition are on their way into memory."""
        self.is_throttled = False
        """Whether a follower gets nothing of a partition while the leader's quota is exceeded."""
        self.throttled_byte_count = 0
        """Bytes of those partitions that were read within the quota."""

    @property
    def waits_for_disk(self) -> bool:
        """Whether the asker would hear nothing, for want of what is brought in now."""
        return self.is_cold and not (self.byte_count or self.is_urgent)

    def refuse(self, at: int, code: ErrorCode) -> None:
        """Replace what was read of one partition by a refusal."""
        target, data = self.results[at]
        self.byte_count -= len(data.records) if data.records is not None else 0
        self.results[at] = target, refused(target, code)
        self.is_urgent |= code not in PATIENT


def find_partition(table: PartitionTable, target: FetchTarget, limits: FetchLimits) -> Partition:
    """Return the target's partition; refuse when it is not here."""
    if limits.uses_topic_ids:
        return table.find_by_id(target.topic_id, target.index)
    return table.find(target.topic, target.index)


def read_partition(
    partition: Partition,
    target: FetchTarget,
    limits: FetchLimits,
    *,
    bytes_max: int,
    is_first: bool,
) -> PartitionData:
    """Return what the asker gets of one partition; refuse with Kafka's code.

    `is_first` says that no partition of the answer has records yet: then the first batch is given
    whole, however large, so that a client always gets on.  With `bytes_max` 0 and not the first
    there are no records, and no disk is looked at.  Raises NotCachedError if what it takes is not
    in memory.
    """
    log = partition.leader_log(target.current_leader_epoch)
    offset = Offset(target.fetch_offset)
    if target.last_fetched_epoch != NO_EPOCH:
        diverging = _divergence(log, offset, Epoch(target.last_fetched_epoch))
        if diverging is not None:
            return _data(target, log, NO_RECORDS, diverging)
    if limits.is_from_follower:
        bound = log.end_offset
    elif limits.is_read_committed:
        bound = log.last_stable_offset
    else:
        bound = log.high_watermark
    if offset >= bound or offset < log.log_start_offset:
        if not log.log_start_offset <= offset <= log.end_offset:
            raise RefusedError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return _data(target, log, NO_RECORDS, NO_DIVERGENCE)
    if not (bytes_max or is_first):
        return _data(target, log, NO_RECORDS, NO_DIVERGENCE)
    read = log.read(
        offset,
        bytes_max=bytes_max,
        end_offset=bound,
        at_least_one=is_first,
        whole_batches=limits.whole_batches,
    )
    records = read.slice
    if records is None or (not is_first and len(records) < read.first_batch_bytes):
        # Not even one whole batch fits: a client could do nothing with it.
        return _data(target, log, NO_RECORDS, NO_DIVERGENCE)
    data = _data(target, log, records, NO_DIVERGENCE)
    if limits.is_read_committed:
        data.aborted_transactions = [
            AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
            for producer_id, first_offset in log.aborted_transactions(offset, read.end_offset)
        ]
    return data


def may_be_held_back(partition: Partition, replica: int) -> bool:
    """Return whether a follower gets less of a partition where its leader's quota asks for it.

    A replica in sync never is: it would leave the in-sync replicas.
    """
    throttled = partition.config.leader_replication_throttled_replicas
    return replica not in partition.isr and throttled.has(partition.index, partition.local_id)


def throttled_bytes(results: list[tuple[FetchTarget, PartitionData]]) -> int:
    """Return how many bytes of throttled replicas an answer to a follower has."""
    return sum(
        len(data.records)
        for target, data in results
        if data.records
        and (partition := target.partition) is not None
        and partition.config.leader_replication_throttled_replicas.has(
            partition.index, partition.local_id
        )
    )


def leaves_something(target: FetchTarget, data: PartitionData, limits: FetchLimits) -> bool:
    """Return whether there is more to tell of a partition than this answer does."""
    if data.error_code or data.diverging_epoch.epoch >= 0:
        return True
    if limits.is_from_follower:
        partition = target.partition
        assert partition is not None
        log = partition.log  # none where another read of the same fetch met a failed disk
        return log is None or target.fetch_offset < log.end_offset
    bound = data.last_stable_offset if limits.is_read_committed else data.high_watermark
    return target.fetch_offset < bound


def unread(partition: Partition, target: FetchTarget) -> PartitionData:
    """Return the answer for a partition whose records are not in memory yet."""
    log = partition.log
    assert log is not None
    return _data(target, log, NO_RECORDS, NO_DIVERGENCE)


def refused(target: FetchTarget, code: ErrorCode) -> PartitionData:
    """Return the answer for a partition that cannot be read."""
    return PartitionData(
        partition_index=target.index,
        error_code=code,
        high_watermark=-1,
        diverging_epoch=NO_DIVERGENCE,
        current_leader=NO_LEADER_HINT,
        snapshot_id=NO_SNAPSHOT,
        aborted_transactions=None,
        records=NO_RECORDS,
    )


def _data(
    target: FetchTarget, log: Log, records: FileSlice | bytes, diverging: EpochEndOffset
) -> PartitionData:
    return PartitionData(
        partition_index=target.index,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        diverging_epoch=diverging,
        current_leader=NO_LEADER_HINT,
        snapshot_id=NO_SNAPSHOT,
        aborted_transactions=None,
        records=records,
    )


def _divergence(log: Log, offset: Offset, epoch: Epoch) -> EpochEndOffset | None:
    """Return where the asker's log parts from ours, None where it follows on."""
    if epoch == log.last_epoch and offset <= log.end_offset:
        return None
    ours = log.end_offset_for_epoch(epoch)
    if ours.epoch == NO_EPOCH:
        raise RefusedError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if ours.epoch < epoch or ours.offset < offset:
        return EpochEndOffset(epoch=ours.epoch, end_offset=ours.offset)
    return None
