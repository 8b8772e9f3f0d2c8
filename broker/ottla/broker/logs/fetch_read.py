"""Reads one partition for a fetch: its readable offsets, and the records to return.

Pure; no record byte is read. A follower may read the whole log, and a consumer the records below
the high watermark. A READ_COMMITTED consumer may read the records below the last stable offset. A
client may report the epoch of its last record. If its log diverges from this broker's log, the
result contains the diverging epoch and end offset instead of records (KIP-595).
"""

from collections.abc import Collection, Hashable, Iterable, Iterator
from typing import Protocol, TypeAlias
from uuid import UUID

from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.tier.remote_fetches import (
    RemoteFetches,
    RemoteKey,
    RemoteRequest,
    first_batches,
)
from ottla.model.errors import CorruptDataError, ErrorCode, OttlaError, RefusedError
from ottla.model.ids import NO_EPOCH, Epoch, Offset
from ottla.model.security.acls import AclOperation, ResourceType
from ottla.node.network.dispatch import Permissions
from ottla.node.network.steps import StepPace, Steps
from ottla.storage.disk.disk_seam import NotCachedError
from ottla.storage.disk.slice import FileSlice
from ottla.storage.log.log import Log
from ottla.storage.log.log_state import LogState
from ottla.wire.codec_types import Records
from ottla.wire.flat.flat_fetch import FlatFetch
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest
from ottla.wire.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)

REPLICA_STATE_FROM = 15
HINTS_FROM = 16
RACK_FROM = 11
"""First version of Fetch in which a request contains the consumer's rack (KIP-392)."""
NO_REPLICA = -1
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
"""Error codes of a partition that do not end the wait of a fetch. If they did, a client that
fetches a deleted topic among others would poll without pause."""

DISK_WAIT_MS = 1_000
"""Minimum milliseconds that a fetch waits for a disk before it is answered without records. A
shorter time sends unnecessary empty responses. A longer time delays clients of a disk that
hangs."""

REMOTE_WAIT_MS = 500
"""Default of remote.fetch.max.wait.ms, in milliseconds."""

FetchForm: TypeAlias = FetchRequest | FlatFetch
"""A Fetch request as message objects, or as a `FlatFetch` (read directly from its bytes)."""

TargetKey = tuple[str | UUID, int]
"""Name of a partition in a Fetch request: topic name (or, from version 13 on, topic id), and
partition index."""


class RemoteOffsetError(OttlaError):
    """Error of a fetch whose offset is below the local start of a tiered log. Only the object store
    has the record."""


class TargetOwner(Protocol):
    """Interface of the fetch session to which a fetch target (a partition to read) belongs."""

    is_privileged: bool
    """True if the fetch session belongs to a follower. Sessions of followers are evicted last."""

    def note_event(self, target: "FetchTarget", key: Hashable) -> None:
        """Record that an event has occurred in the partition of a fetch target. `key` is the
        wake-up key of the event."""
        ...


class FetchTarget:
    """A partition that a client fetches, with the offsets that the client last received in its
    fetch session."""

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
        "seen_high_watermark",
        "seen_log_start_offset",
        "session",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        topic_id: UUID,
        index: int,
        asked: FetchPartition | FlatFetch,
        key: TargetKey,
        partition: Partition | None = None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.key = key
        self.partition = partition
        """Partition that this fetch target reads. It is looked up once, and again if the broker has
        removed the partition."""
        self.session: TargetOwner | None = None
        self.seen_high_watermark = -1
        self.seen_log_start_offset = -1
        # As `ask` does, without a call: most fetches create one target.
        self.fetch_offset = asked.fetch_offset
        self.partition_bytes_max = asked.partition_max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.log_start_offset = asked.log_start_offset
        self.replica_high_watermark = asked.high_watermark
        self.is_asked = True
        """True if the latest Fetch request named this partition and the follower's log offsets in
        that request have not been passed to `partition` yet. Used only if a follower fetches."""

    def ask(self, asked: FetchPartition | FlatFetch) -> None:
        """Apply the entry of a later request to this fetch target: replace the fetch offset, the
        limits and the client's other values."""
        self.fetch_offset = asked.fetch_offset
        self.partition_bytes_max = asked.partition_max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.log_start_offset = asked.log_start_offset
        self.replica_high_watermark = asked.high_watermark
        self.is_asked = True

    def on_wake(self, key: Hashable) -> None:
        """Notify the fetch session that the partition may have new records or changed offsets."""
        if self.session is not None:
            self.session.note_event(self, key)

    def must_report(self, result: "PartitionResult") -> bool:
        """Return whether the response to an incremental fetch must include this partition. If it
        must, its reported offsets are stored."""
        is_changed = (
            result.size > 0
            or result.error_code != 0
            or result.preferred_replica != NO_REPLICA
            or result.high_watermark != self.seen_high_watermark
            or result.log_start_offset != self.seen_log_start_offset
            or result.diverging is not None
        )
        # After an error, the next response without an error is reported, whatever its offsets.
        self.seen_high_watermark = -1 if result.error_code else result.high_watermark
        self.seen_log_start_offset = result.log_start_offset
        return is_changed


class PartitionResult:
    """Result of reading one partition for a fetch: its records and offsets, or an error code."""

    __slots__ = (
        "aborted",
        "diverging",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "preferred_replica",
        "records",
        "size",
        "target",
    )

    def __init__(
        self,
        target: FetchTarget,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        records: Records,
        size: int,
    ) -> None:
        self.target = target
        self.error_code = 0
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.records = records
        self.size = size
        """Number of bytes of the records in this result."""
        self.aborted: list[tuple[int, Offset]] | None = None
        """Producer id and first offset of each aborted transaction among the records, or None if
        the client also reads uncommitted records."""
        self.preferred_replica = NO_REPLICA
        """Id of the replica from which the consumer should fetch instead, or NO_REPLICA."""
        self.diverging: EpochEndOffset | None = None
        """Epoch and end offset at which the client's log diverges from this broker's log, or None
        if the logs do not diverge."""

    def encodable(self) -> PartitionData:
        """Return this result as the entry for a partition in a Fetch response."""
        aborted, diverging = self.aborted, self.diverging
        return PartitionData(
            partition_index=self.target.index,
            error_code=self.error_code,
            high_watermark=self.high_watermark,
            last_stable_offset=self.last_stable_offset,
            log_start_offset=self.log_start_offset,
            diverging_epoch=NO_DIVERGENCE if diverging is None else diverging,
            current_leader=NO_LEADER_HINT,
            snapshot_id=NO_SNAPSHOT,
            preferred_read_replica=self.preferred_replica,
            aborted_transactions=None
            if aborted is None
            else [
                AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                for producer_id, first_offset in aborted
            ],
            records=self.records,
        )


class FetchLimits:
    """Limits of one Fetch request, such as its maximum bytes, shared by all its partitions."""

    __slots__ = (
        "bytes_max",
        "bytes_min",
        "is_from_follower",
        "is_read_committed",
        "rack",
        "reads_followers",
        "replica_epoch",
        "replica_id",
        "uses_topic_ids",
        "whole_batches",
    )

    bytes_max: int
    bytes_min: int
    is_from_follower: bool
    is_read_committed: bool
    rack: str
    """Rack of the consumer if the response may name a nearer replica, otherwise the empty string.
    """
    reads_followers: bool
    """True if this broker may serve the request from a replica that is a follower (KIP-392)."""
    replica_epoch: int
    replica_id: int
    uses_topic_ids: bool
    whole_batches: bool
    """True if the response may not end with a truncated batch. A client fetches a truncated batch
    again, so its quota would be charged twice."""


def asked_partitions(
    request: FetchForm, uses_topic_ids: bool
) -> Iterator[tuple[TargetKey, str, UUID, FetchPartition]]:
    """Yield the key, topic name, topic id and request entry of every partition in a Fetch
    request."""
    for topic in request.topics:
        name: str | UUID = topic.topic_id if uses_topic_ids else topic.topic
        for asked in topic.partitions:
            yield (name, asked.partition), topic.topic, topic.topic_id, asked


def targets_of(request: FetchForm, uses_topic_ids: bool) -> Steps[list[FetchTarget]]:
    """Return the targets (partitions to read) of a full Fetch request. If the request names a
    partition twice, the last entry is used."""
    pace = StepPace()
    targets: dict[TargetKey, FetchTarget] = {}
    for key, topic, topic_id, asked in asked_partitions(request, uses_topic_ids):
        targets[key] = FetchTarget(topic, topic_id, asked.partition, asked, key)
        if pace.is_due():
            yield
    return list(targets.values())


def targets_by_key(
    targets: Iterable[FetchTarget], is_from_follower: bool
) -> dict[object, FetchTarget]:
    """Return the partitions of a fetch by their wake-up keys in the purgatory. Each partition has
    the key of its high watermark. In a follower's fetch, each partition also has the key of its log
    end offset."""
    found: dict[object, FetchTarget] = {}
    for target in targets:
        partition = target.partition
        if partition is not None:
            found[partition.high_watermark_key] = target
            if is_from_follower:
                found[partition.end_offset_key] = target
    return found


def check_readable(permissions: Permissions, topic: str) -> None:
    """Raise RefusedError if the consumer may not read the topic under the current ACLs."""
    if not permissions.allows(*READ_TOPIC, topic):
        raise RefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


class FetchReading:
    """Results of reading the partitions of a fetch once, in the order of reading."""

    __slots__ = (
        "byte_count",
        "due",
        "is_cold",
        "is_remote",
        "is_throttled",
        "is_urgent",
        "readable_count",
        "remote_byte_count",
        "results",
        "throttled_byte_count",
    )

    def __init__(self, due: list[FetchTarget]) -> None:
        self.due = due
        """Fetch targets (partitions) to read, in the order in which they are read."""
        self.results: list[PartitionResult] = []
        self.byte_count = 0
        self.is_urgent = False
        """True if a partition of the fetch has an error or diverges from the client's log. The
        response then does not wait for more records."""
        self.readable_count = 0
        self.is_cold = False
        """True if the records of at least one partition of the fetch are still being loaded into
        the page cache, or read from the object store."""
        self.is_remote = False
        """True if the records of at least one partition of the fetch are still being read from the
        object store."""
        self.remote_byte_count = 0
        """Maximum number of bytes that the fetch's reads from the object store return together."""
        self.is_throttled = False
        """True if a follower gets no records of at least one partition because the leader's
        replication quota is exceeded."""
        self.throttled_byte_count = 0
        """Bytes of records that were read from partitions to which the leader's replication quota
        applies."""

    @property
    def waits_for_disk(self) -> bool:
        """True if the Fetch response would be empty because its records are still being loaded from
        disk or the object store."""
        return self.is_cold and not (self.byte_count or self.is_urgent)

    def refuse(self, at: int, code: ErrorCode) -> None:
        """Replace the result of the partition at index `at` by an error code."""
        result = self.results[at]
        self.byte_count -= result.size
        self.results[at] = refused(result.target, code)
        self.is_urgent |= code not in PATIENT


def find_partition(table: PartitionTable, target: FetchTarget, limits: FetchLimits) -> Partition:
    """Return the partition that a fetch target names. Raises RefusedError if the partition is not
    on this broker."""
    if limits.uses_topic_ids:
        return table.find_by_id(target.topic_id, target.index)
    return table.find(target.topic, target.index)


def read_partition(
    partition: Partition,
    target: FetchTarget,
    limits: FetchLimits,
    bytes_max: int,
    is_first: bool,
    may_copy: bool,
    now_ms: int,
) -> PartitionResult:
    """Return the records and offsets of one partition. Raises RefusedError with Kafka's error code.

    `is_first` is True while no partition of the response has records. The first batch is then
    returned whole, even if it exceeds `bytes_max`, so that a client always makes progress. If
    `bytes_max` is 0 and `is_first` is False, no records are returned and the disk is not read. With
    `may_copy` a few records may be returned as bytes, not as a slice. Raises NotCachedError if the
    records are not in the page cache, and RemoteOffsetError if only the object store may have them.
    """
    epoch = target.current_leader_epoch
    reads_any = limits.reads_followers
    log = partition.readable_log(epoch, now_ms) if reads_any else partition.leader_log(epoch)
    state = log.state
    offset = Offset(target.fetch_offset)
    high_watermark, log_start_offset = state.high_watermark, state.log_start_offset
    last_stable_offset = state.last_stable_offset()
    result = PartitionResult(
        target, high_watermark, last_stable_offset, log_start_offset, NO_RECORDS, 0
    )
    if target.last_fetched_epoch != NO_EPOCH:
        diverging = _divergence(log, offset, Epoch(target.last_fetched_epoch))
        if diverging is not None:
            result.diverging = diverging
            return result
    if limits.is_from_follower:
        bound = state.end_offset
    elif limits.is_read_committed:
        bound = last_stable_offset
    else:
        bound = high_watermark
    if offset >= bound or offset < state.local_start_offset:
        _check_unread(state, offset, bound, limits.is_from_follower)
        return result
    if not (bytes_max or is_first):
        return result
    is_committed, whole_batches = limits.is_read_committed, limits.whole_batches
    if is_first and may_copy and not (is_committed and log.has_aborted_lately):
        try:
            records = log.reader.read_single(offset, bytes_max, bound, now_ms, whole_batches)
        except (NotCachedError, OSError):
            records = None
        if records is not None:
            result.records = records
            result.size = records.length if isinstance(records, FileSlice) else len(records)
            if is_committed:
                result.aborted = []
            return result
    read = log.read(
        offset,
        bytes_max=bytes_max,
        end_offset=bound,
        at_least_one=is_first,
        whole_batches=whole_batches,
    )
    found = read.slice
    if found is None or (not is_first and len(found) < read.first_batch_bytes):
        # Not even one whole batch fits.  A client could not use a part of one.
        return result
    result.records, result.size = found, len(found)
    if is_committed:
        result.aborted = log.aborted_transactions(offset, read.end_offset)
    return result


def _check_unread(state: LogState, offset: Offset, bound: Offset, is_from_follower: bool) -> None:
    """Raise RefusedError if an offset is outside the log, or RemoteOffsetError if it is below the
    local start of a tiered log. The caller has found no readable records at the offset in the local
    log."""
    if not state.log_start_offset <= offset <= state.end_offset:
        raise RefusedError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if offset < bound:
        if is_from_follower:
            raise RefusedError(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
        raise RemoteOffsetError(f"offset {offset} is below {state.local_start_offset}")


def read_remote(
    fetches: RemoteFetches,
    reading: FetchReading,
    partition: Partition,
    target: FetchTarget,
    limits: FetchLimits,
    left: int,
    now_ms: int,
) -> PartitionResult:
    """Return the records of a partition from the object store if they were read already. Otherwise
    begin to read them, and return a result without records.

    `left` is the number of bytes that the response may still add. Only the first partition of a
    response gets a batch that is larger (KAFKA-19795).
    """
    log = partition.log
    assert log is not None
    at_least_one = not reading.byte_count and not reading.is_remote
    bytes_max = max(0, min(target.partition_bytes_max, left - reading.remote_byte_count))
    reading.readable_count += 1
    result = unread(partition, target)
    if not (bytes_max or at_least_one):
        return result
    key = RemoteKey(partition, Offset(target.fetch_offset), limits.is_read_committed)
    try:
        read = fetches.take(RemoteRequest(key, log, bytes_max, at_least_one), now_ms)
    except RefusedError as error:
        reading.readable_count -= 1
        reading.is_urgent |= error.code not in PATIENT
        return refused(target, error.code)
    if read is None:
        reading.is_cold = reading.is_remote = True
        reading.remote_byte_count += bytes_max
        return result
    result.records = records = first_batches(read.records, bytes_max, at_least_one=at_least_one)
    result.size = len(records)
    if limits.is_read_committed:
        result.aborted = list(read.aborted)
    return result


def extended_wait(reading: FetchReading, wait_ms: int, remote_wait_ms: int) -> tuple[int, bool]:
    """Return the time in milliseconds that the fetch waits for records that are being loaded. Also
    returns whether this time is longer than the client's maximum wait `wait_ms`."""
    if reading.is_remote:
        return remote_wait_ms, True
    return max(wait_ms, DISK_WAIT_MS), wait_ms < DISK_WAIT_MS


def may_be_held_back(partition: Partition, replica: int) -> bool:
    """Return whether the leader's replication quota may delay the records of a partition to a
    follower.

    A follower in the ISR is never throttled, because throttling would remove it from the ISR.
    """
    throttled = partition.config.leader_replication_throttled_replicas
    return replica not in partition.isr and throttled.has(partition.index, partition.local_id)


def throttled_bytes(results: list[PartitionResult]) -> int:
    """Return the number of bytes of records from throttled replicas in a response to a follower."""
    return sum(
        result.size
        for result in results
        if result.size
        and (partition := result.target.partition) is not None
        and partition.config.leader_replication_throttled_replicas.has(
            partition.index, partition.local_id
        )
    )


def leaves_something(result: PartitionResult, limits: FetchLimits) -> bool:
    """Return whether a partition has records or changed offsets that this Fetch response does not
    report."""
    target = result.target
    if result.error_code or result.diverging is not None:
        return True
    if limits.is_from_follower:
        partition = target.partition
        assert partition is not None
        log = partition.log  # None after a disk error in the same fetch.
        return log is None or target.fetch_offset < log.end_offset
    bound = result.last_stable_offset if limits.is_read_committed else result.high_watermark
    return target.fetch_offset < bound


def redirected(partition: Partition, target: FetchTarget, replica: int) -> PartitionResult:
    """Return a fetch result without records that names the replica from which the consumer should
    fetch instead. Raises RefusedError if the consumer's leader epoch is wrong."""
    partition.leader_log(target.current_leader_epoch)
    result = unread(partition, target)
    result.preferred_replica = replica
    return result


def unread(partition: Partition, target: FetchTarget) -> PartitionResult:
    """Return a fetch result without records for a partition that is not read now."""
    log = partition.log
    assert log is not None
    state = log.state
    return PartitionResult(
        target,
        state.high_watermark,
        state.last_stable_offset(),
        state.log_start_offset,
        NO_RECORDS,
        0,
    )


def cold(reading: FetchReading, partition: Partition, target: FetchTarget) -> PartitionResult:
    """Return a fetch result without records for a partition whose records are being loaded."""
    reading.readable_count += 1
    reading.is_cold = True
    return unread(partition, target)


def damaged(
    reading: FetchReading, partition: Partition, target: FetchTarget, damage: CorruptDataError
) -> PartitionResult:
    """Return the fetch result for a partition with corrupt records, and store the description of
    the damage."""
    partition.damage = str(damage)
    reading.is_urgent = True
    return refused(target, ErrorCode.CORRUPT_MESSAGE)


def refused(target: FetchTarget, code: ErrorCode) -> PartitionResult:
    """Return the fetch result for a partition that cannot be read because of an error."""
    result = PartitionResult(target, -1, -1, -1, NO_RECORDS, 0)
    result.error_code = code
    return result


def _divergence(log: Log, offset: Offset, epoch: Epoch) -> EpochEndOffset | None:
    """Return the epoch and end offset at which a client's log diverges from this broker's log, or
    None if the client's log is a prefix of the broker's log."""
    if epoch == log.last_epoch and offset <= log.end_offset:
        return None
    ours = log.end_offset_for_epoch(epoch)
    if ours.epoch == NO_EPOCH:
        raise RefusedError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if ours.epoch < epoch or ours.offset < offset:
        return EpochEndOffset(epoch=ours.epoch, end_offset=ours.offset)
    return None


def is_read_ahead(partition: Partition, readers: Collection[str]) -> bool:
    """Return whether bytes of the partition's newest segment are being loaded in advance for a
    sequential reader. `readers` contains the paths of files with such readers."""
    log = partition.log
    return log is not None and log.newest_path in readers


def is_impatient(request: FetchForm, reading: FetchReading) -> bool:
    """Return whether a fetch must be answered at once, because its client does not wait for more
    records and no record is being loaded from disk."""
    return request.max_wait_ms <= 0 and not reading.waits_for_disk
