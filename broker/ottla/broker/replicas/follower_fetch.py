"""Decides the fetches of a follower from one leader, and applies the responses to the follower's
logs.

Pure: `replica_fetcher_driver` sends the requests and runs the duties that take time. A replica
fetches from its own log end and reports the epoch of its last record. If the logs diverge, the
leader reports the diverging epoch and offset, and the follower truncates its log (KIP-279, part of
Fetch since version 12). A partition that cannot be followed is marked as failed with its reason and
retried later. All other partitions are still fetched.

Invariants:
- FollowsInOrder: appended records begin at the follower's log end, and have the requested epoch. A
  record is never appended after records that may belong to another log.
- OneBadPartitionHoldsUpNoOther.
- AsksFromWhatIsFlushed: where a flush is required, the fetch offset promises that all records below
  it are flushed. This includes records written as a leader or fetched before.
"""

import logging
from collections.abc import Collection, Iterator

from ottla.broker.quotas.replication_quota import ReplicationQuota
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.tier_start import TierStart
from ottla.client.fetch.fetch_session import FetchSessionHandler
from ottla.model.errors import ErrorCode, OttlaError, RefusedError, row_of
from ottla.model.ids import NO_EPOCH, NO_OFFSET, Epoch, NodeId, Offset, TopicIdPartition
from ottla.model.limits import INT64_MAX
from ottla.model.settings.broker import BrokerConfig
from ottla.model.values import frozen
from ottla.storage.log.log import Log
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, ReplicaState
from ottla.wire.messages.fetch_response import EpochEndOffset, PartitionData

logger = logging.getLogger("ottla.broker.replicas")

BACKOFF_MS_FIRST = 20
"""Milliseconds before the first retry of a follower's fetch that the leader refused. Most refusals
end within milliseconds, when both brokers have the same metadata. A smaller value sends more
fetches to a broker that does not lead yet. A larger value delays every failover."""

RETRY_BACKOFF_MS_MAX = 30_000
"""Maximum milliseconds between two attempts to follow a partition with a lasting problem, such as
corrupt records or a failed disk."""

NEVER_MS = 1 << 53
"""Time in milliseconds that means never, because no clock reaches it."""

NEAR_READ_MS = 30_000
"""Duration in milliseconds, after a consumer has read from this follower, during which the
follower's fetches request new high watermarks at once. With a smaller value, a consumer that pauses
sees records later. With a larger value, the follower sends a second fetch for each batch for
longer."""

NOT_KNOWN = -1
"""Value of a replica's lag before the leader has answered a fetch of the replica."""

NOT_ASKED = 1 << 63
"""Request number of a followed partition that no fetch request includes yet. It is higher than any
real request number."""

PASSING = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
    )
)
"""Error codes of fetch responses that occur while one broker has newer metadata than the other.
They do not indicate a fault."""


LEADER_LACKS_RECORDS = "the leader lacks committed records"


class LeaderLacksRecordsError(RefusedError):
    """Raised if a cleanly elected leader lacks records that are committed according to this
    replica."""


@frozen
class Truncate:
    """Instruction to truncate the follower's log from `offset` on, where the leader has different
    records."""

    offset: Offset


@frozen
class FindLogRange:
    """Instruction to request the leader's log start and end offsets. The follower's log is outside
    this range, or begins too late."""


@frozen
class RaiseStart:
    """Instruction to raise the follower's log start offset to the leader's log start offset."""

    offset: Offset


@frozen
class TruncateFully:
    """Instruction to delete all records of the follower and continue at an offset of the leader's
    log. It is used if the follower's log ends below the start of the leader's log, or may differ
    from it."""

    offset: Offset


@frozen
class FindTierStart:
    """Instruction to find a copied segment after which the follower's log begins, because the
    leader has the next records only in the object store."""


@frozen
class BeginAfterTier:
    """Instruction to delete all local records of the follower, and to begin its log after a copied
    segment."""

    start: TierStart
    log_start_offset: Offset
    """Log start offset of the leader. Records from this offset up to the start of the local log are
    in the object store."""
    now_ms: int
    """Wall time in ms since 1970, which becomes the last-seen time of the producers of the copied
    records."""


@frozen
class Flush:
    """Instruction to flush the follower's appended records to disk. The next fetch then
    acknowledges them to the leader."""


Duty = Truncate | FindLogRange | FindTierStart | BeginAfterTier | RaiseStart | TruncateFully | Flush
"""Work on a followed partition that a leader's response requires before the partition is fetched
again. The work may take time."""


class FollowedPartition:
    """One partition that this broker follows, and the state of its fetches from the leader."""

    __slots__ = (
        "asked_in",
        "backoff_ms",
        "key",
        "lag",
        "leader_epoch",
        "partition",
        "problem",
        "reports_watermark",
        "retry_at_ms",
        "shared_end",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key = partition.key
        self.leader_epoch = partition.leader_epoch
        self.asked_in = NOT_ASKED
        """Number of the first fetch request that includes this partition. Responses to earlier
        requests are ignored."""
        self.lag = NOT_KNOWN
        """Number of committed records that this replica lacked at the leader's last response, or
        NOT_KNOWN before the first response."""
        self.reports_watermark = False
        """True if the follower's last fetch request named the follower's high watermark for this
        partition. The leader then answers as soon as its own high watermark is higher."""
        self.retry_at_ms = 0
        self.backoff_ms = 0
        self.problem: str | None = None
        """Reason of a lasting problem because of which the partition cannot be followed, or
        None."""
        self.shared_end: Offset | None = None
        """End offset of the prefix that this follower's log has in common with the leader's log.
        None if that offset is not below the follower's log start offset."""

    @property
    def name(self) -> str:
        """Topic and index of the partition, as text for messages."""
        return f"{self.partition.topic}-{self.partition.index}"

    @property
    def is_throttled(self) -> bool:
        """True if the topic's replication is throttled for this follower."""
        partition = self.partition
        throttled = partition.config.follower_replication_throttled_replicas
        return throttled.has(partition.index, partition.local_id)

    @property
    def is_in_sync(self) -> bool:
        """True if the replica is in the ISR, or has all committed records."""
        return self.lag == 0 or self.partition.local_id in self.partition.isr

    @property
    def log(self) -> Log:
        """Log of this broker's replica. A partition is followed only while it has a log."""
        log = self.partition.log
        assert log is not None
        return log


class FollowerFetch:
    """Partitions that this broker follows from one leader, and the state of their fetches."""

    def __init__(self, leader_id: NodeId, config: BrokerConfig, quota: ReplicationQuota) -> None:
        self.leader_id = leader_id
        self.session = FetchSessionHandler()
        self._config = config
        self._followed: dict[TopicIdPartition, FollowedPartition] = {}
        self._failed: dict[TopicIdPartition, FollowedPartition] = {}
        self._unflushed: dict[TopicIdPartition, FollowedPartition] = {}
        self._quota = quota
        self._throttled: dict[TopicIdPartition, FollowedPartition] = {}
        """Partitions that are left out of fetch requests while the follower's replication quota is
        exceeded, by topic id and partition."""
        self._throttled_until_ms = NEVER_MS
        self._request_number = 0
        self._now_ms = 0

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def followed(self) -> Collection[FollowedPartition]:
        """All partitions that are followed from this leader, including failed partitions that wait
        for a retry."""
        return self._followed.values()

    @property
    def failed_count(self) -> int:
        """Number of followed partitions that failed and are not fetched until their retry."""
        return len(self._failed)

    # ---- followed partitions

    def follow(self, partition: Partition) -> None:
        """Follow a partition, which is included in the next fetch request."""
        followed = FollowedPartition(partition)
        assert followed.key not in self._followed
        self._followed[followed.key] = followed
        self._ask(followed)

    def leave(self, key: TopicIdPartition) -> FollowedPartition | None:
        """Stop following a partition. Returns its state, or None if it was not followed. A fetch
        response in flight no longer affects the partition."""
        followed = self._followed.pop(key, None)
        if followed is not None:
            self._failed.pop(key, None)
            self._unflushed.pop(key, None)
            self._throttled.pop(key, None)
            self.session.forget(key)
        return followed

    def find(self, key: TopicIdPartition) -> FollowedPartition | None:
        """Return the state of a partition if it is followed, or None."""
        return self._followed.get(key)

    def problems(self) -> Iterator[str]:
        """Yield a problem description for each failed partition that waits for a retry."""
        for followed in self._failed.values():
            if followed.problem is not None:
                yield f"{followed.name} does not follow broker {self.leader_id}: {followed.problem}"

    # ---- requests

    def request(self, now_ms: int, broker_epoch: int) -> FetchRequest | None:
        """Return the next fetch request to the leader, or None if no partition can be fetched."""
        self._now_ms = now_ms
        for followed in [one for one in self._failed.values() if one.retry_at_ms <= now_ms]:
            del self._failed[followed.key]
            self._ask(followed)
        if self._throttled or self._quota.is_limited:
            self._throttle(now_ms)
        if not len(self.session):
            return None
        config = self._config
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=config.node_id, replica_epoch=broker_epoch),
            max_wait_ms=config.replica_fetch_wait_ms_max,
            min_bytes=config.replica_fetch_bytes_min,
            max_bytes=config.replica_fetch_response_bytes_max,
        )
        self.session.fill(request)
        self._request_number += 1
        return request

    @property
    def next_retry_ms(self) -> int | None:
        """Time in milliseconds of the next retry of a failed or throttled partition, or None if no
        partition waits for a retry."""
        retry_ms = min((one.retry_at_ms for one in self._failed.values()), default=None)
        if not self._throttled:
            return retry_ms
        until_ms = self._throttled_until_ms
        return until_ms if retry_ms is None else min(retry_ms, until_ms)

    def _throttle(self, now_ms: int) -> None:
        """Exclude throttled partitions that are not in sync from fetch requests while the
        replication quota is exceeded.

        All of them are fetched again when the rate has fallen to the limit.
        """
        delay_ms = self._quota.delay_ms()
        if not delay_ms:
            waiting, self._throttled = self._throttled, {}
            for followed in waiting.values():
                self._ask(followed)
            return
        self._throttled_until_ms = now_ms + delay_ms
        for followed in self._followed.values():
            if followed.asked_in != NOT_ASKED and followed.is_throttled and not followed.is_in_sync:
                followed.asked_in = NOT_ASKED
                self._throttled[followed.key] = followed
                self.session.forget(followed.key)

    @property
    def has_unflushed(self) -> bool:
        """True if a followed partition must be flushed to disk before it is fetched."""
        return bool(self._unflushed)

    def take_unflushed(self) -> list[FollowedPartition]:
        """Remove and return the followed partitions that must be flushed before the next fetch. The
        caller must flush each partition and then call `done`."""
        unflushed, self._unflushed = list(self._unflushed.values()), {}
        return unflushed

    def _ask(self, followed: FollowedPartition) -> None:
        log = followed.log
        if log.failure is not None:
            self._hold_failed(followed, log.failure)
            return
        if followed.partition.is_flush_due:
            followed.asked_in = NOT_ASKED
            self._unflushed[followed.key] = followed
            return
        followed.asked_in = self._request_number + 1
        followed.reports_watermark = self._is_read_nearby(followed)
        fetch_offset, last_epoch = log_end_of(log)
        self.session.want(
            followed.key,
            FetchPartition(
                partition=followed.key.partition,
                current_leader_epoch=followed.leader_epoch,
                fetch_offset=fetch_offset,
                last_fetched_epoch=last_epoch,
                log_start_offset=log.log_start_offset,
                partition_max_bytes=self._config.replica_fetch_bytes_max,
                high_watermark=log.high_watermark if followed.reports_watermark else INT64_MAX,
            ),
        )

    def _is_read_nearby(self, followed: FollowedPartition) -> bool:
        """Return whether consumers read from this replica, and should therefore see a new high
        watermark at once.

        In Kafka, a follower receives the high watermark with its next fetch, up to
        `replica.fetch.wait.max.ms` later. The result is False for a throttled partition, because
        its fetch may be answered without records.
        """
        read_ms = followed.partition.consumer_read_ms
        is_recent = read_ms is not None and self._now_ms - read_ms <= NEAR_READ_MS
        return is_recent and not (self._quota.is_limited and followed.is_throttled)

    def _hold_failed(self, followed: FollowedPartition, failure: str) -> None:
        """Stop fetching a partition whose log rejects appends. Otherwise the leader would count the
        follower as caught up."""
        followed.problem = failure
        followed.retry_at_ms = NEVER_MS
        followed.asked_in = NOT_ASKED
        self._failed[followed.key] = followed
        self.session.forget(followed.key)

    # ---- responses

    def take(
        self, followed: FollowedPartition, data: PartitionData, *, now_ms: int, wall_ms: int
    ) -> Duty | None:
        """Apply the leader's fetch response for one partition. Returns the disk work (`Duty`) that
        must be done before the partition is fetched again, or None."""
        if followed.asked_in > self._request_number:
            return None  # The request was sent before we followed in this epoch.
        self._now_ms = now_ms
        try:
            duty = self._taken(followed, data, wall_ms)
        except OttlaError as error:
            self.mark_failed(followed, error, now_ms)
            return None
        if duty is not None:
            followed.asked_in = NOT_ASKED
        return duty

    def _taken(self, followed: FollowedPartition, data: PartitionData, wall_ms: int) -> Duty | None:
        log = followed.log
        is_out_of_range = data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        if log.hole_offset is not None and (is_out_of_range or not data.error_code):
            is_within = log.hole_offset > log.log_start_offset
            return Truncate(log.hole_offset) if is_within else TruncateFully(log.hole_offset)
        if is_out_of_range:
            return FindLogRange()
        if data.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            return FindTierStart()
        if data.error_code:
            raise RefusedError(ErrorCode(row_of(data.error_code).code))
        if data.diverging_epoch.epoch >= 0:
            end = truncation_of(log, data.diverging_epoch)
            if end >= log.log_start_offset:
                return Truncate(end)
            followed.shared_end = end
            return FindLogRange()
        records = data.records
        end_offset = log.end_offset
        if may_be_uncommitted(log, Offset(data.log_start_offset), followed.leader_epoch):
            return TruncateFully(end_offset)
        if records is not None and len(records):
            assert isinstance(records, memoryview)
            log.append_as_follower(records, now_ms=wall_ms)
            followed.partition.traffic.replication_bytes_in += len(records)
            if self._quota.is_limited and followed.is_throttled:
                self._quota.record(len(records))
        if followed.problem is not None:
            logger.warning("%s follows broker %s again", followed.name, self.leader_id)
        followed.backoff_ms, followed.problem = 0, None
        followed.lag = max(0, data.high_watermark - log.end_offset)
        is_raised = followed.partition.follow_high_watermark(Offset(data.high_watermark))
        start = min(Offset(data.log_start_offset), log.high_watermark)
        if start > log.log_start_offset:
            return RaiseStart(start)
        if log.end_offset != end_offset:
            if followed.partition.is_flush_due:
                return Flush()
            self._ask(followed)
        elif is_raised and (followed.reports_watermark or self._is_read_nearby(followed)):
            self._ask(followed)
        return None

    def done(self, followed: FollowedPartition) -> None:
        """Resume fetching a partition, because the disk work that the leader's last response
        required has ended."""
        if self._followed.get(followed.key) is followed:
            self._ask(followed)

    def hold_back(self, followed: FollowedPartition) -> None:
        """Stop fetching a partition until the long-running disk work on its log is done. Other
        partitions are still fetched."""
        if self._followed.get(followed.key) is followed:
            self.session.forget(followed.key)

    def mark_failed(self, followed: FollowedPartition, error: Exception, now_ms: int) -> None:
        """Stop fetching a partition until a retry, after an error, and store the reason. Each
        consecutive error lengthens the time until the retry."""
        if self._followed.get(followed.key) is not followed:
            return
        is_passing = isinstance(error, RefusedError) and error.code in PASSING
        longest_ms = self._config.replica_fetch_backoff_ms if is_passing else RETRY_BACKOFF_MS_MAX
        if not is_passing:
            if followed.problem != str(error):
                is_loss = isinstance(error, LeaderLacksRecordsError)
                level = logging.ERROR if is_loss else logging.WARNING
                text = "%s does not follow broker %s: %s"
                logger.log(level, text, followed.name, self.leader_id, error)
            followed.problem = str(error)
        followed.backoff_ms = min(max(BACKOFF_MS_FIRST, 2 * followed.backoff_ms), longest_ms)
        followed.retry_at_ms = now_ms + followed.backoff_ms
        followed.asked_in = NOT_ASKED
        self._failed[followed.key] = followed
        self.session.forget(followed.key)


def log_end_of(log: Log) -> tuple[Offset, Epoch]:
    """Return the end offset and the last epoch of a follower's log, or (-1, -1) if the log has a
    hole.

    With -1 as the fetch offset, every leader responds with OFFSET_OUT_OF_RANGE, and does not count
    this follower as in sync. With its real end offset, the follower would be in sync as soon as
    that offset equals the leader's log end.
    """
    if log.hole_offset is None:
        return log.end_offset, log.last_epoch
    return NO_OFFSET, NO_EPOCH


def place_of(
    followed: FollowedPartition, leader_start: Offset, leader_end: Offset
) -> Truncate | TruncateFully | RaiseStart:
    """Return the disk work (duty) after which the follower's log continues the leader's log, which
    has the offsets [leader_start, leader_end).

    If the follower's log begins after the end of the shared prefix, all its records are deleted and
    it starts again at the leader's log start. Continuing at the end of the prefix would silently
    omit the leader's earlier records.
    """
    log = followed.log
    shared_end = leader_end if followed.shared_end is None else followed.shared_end
    followed.shared_end = None
    shared_end = min(shared_end, leader_end)
    if shared_end < log.log_start_offset or leader_start > log.end_offset:
        return TruncateFully(leader_start)
    if shared_end < log.end_offset:
        return Truncate(shared_end)
    return RaiseStart(min(leader_start, log.high_watermark))


def may_be_uncommitted(log: Log, leader_start: Offset, leader_epoch: Epoch) -> bool:
    """Return whether the follower's log ends at the leader's log start offset and may contain
    records that were never committed.

    The leader has deleted these offsets and cannot report a divergence. A record of the follower
    may differ from the deleted record under two conditions: no leader reported it as committed, and
    its epoch is older than this leader's. If the follower then lost its new log start offset, such
    records would be visible again, and the sequence numbers of their producers would count at once.
    """
    return (
        log.log_start_offset < log.end_offset == leader_start
        and log.high_watermark < leader_start
        and log.last_epoch < leader_epoch
    )


def truncation_of(log: Log, diverging: EpochEndOffset) -> Offset:
    """Return the offset at which to truncate the follower's log. `diverging` is the leader's last
    epoch that is not above the follower's, with its end offset.

    Above that end offset, the leader has only later epochs. The follower's log must therefore end
    there, or earlier if the follower's records of this epoch (or of the epoch before) end earlier.
    The remaining records may still differ in an earlier epoch, which the next fetch reports
    (KIP-279).
    """
    ours = log.end_offset_for_epoch(Epoch(diverging.epoch))
    end_offset = log.end_offset if ours.epoch == NO_EPOCH else ours.offset
    return min(end_offset, Offset(diverging.end_offset), log.end_offset)
