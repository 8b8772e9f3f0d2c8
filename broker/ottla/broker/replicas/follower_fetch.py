"""What a follower asks of one leader, and what its logs make of the answers.

Pure: `replica_fetcher_driver` sends the requests and performs the duties that take time.  A replica
asks from its own end on and names the epoch it wrote last; a leader whose log parts from ours there
says where, and we cut our log back to what both have (KIP-279, told by Fetch since version 12).
A partition that cannot be followed is set aside with its reason and tried again later; the others
go on.

Invariants: FollowsInOrder (what is appended begins where our log ends, in the epoch that was asked
for, and behind nothing that may be another log's), OneBadPartitionHoldsUpNoOther,
AsksFromWhatIsFlushed (where a flush is demanded: the offset asked for is our promise to have all
below, also of what we wrote as a leader or followed before).
"""

import logging
from collections.abc import Collection, Iterator
from typing import NamedTuple

from ottla.broker.quotas.replication_quota import ReplicationQuota
from ottla.broker.replicas.partition import Partition
from ottla.client.fetch.fetch_session import FetchSessionHandler
from ottla.model.errors import ErrorCode, OttlaError, RefusedError, row_of
from ottla.model.ids import NO_EPOCH, Epoch, NodeId, Offset, TopicIdPartition
from ottla.model.settings.broker import BrokerConfig
from ottla.storage.log import Log
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, ReplicaState
from ottla.wire.messages.fetch_response import EpochEndOffset, PartitionData

logger = logging.getLogger("ottla.broker.replicas")

BACKOFF_MS_FIRST = 20
"""The first wait after a refusal: most end within milliseconds, when both sides have the same
metadata.  Lower polls a leader that is not one yet; higher delays every failover by as much."""

SET_ASIDE_MS_MAX = 30_000
"""The longest wait where waiting is not what heals: damaged records, a failed disk."""

NEVER_MS = 1 << 53
"""Beyond every clock."""

NOT_KNOWN = -1
"""The lag of a replica that the leader has not answered for yet."""

NOT_ASKED = 1 << 63
"""Above the number of any request."""

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
"""Refusals while one side has newer metadata than the other; no fault of anybody's."""


LEADER_LACKS_RECORDS = "the leader lacks committed records"


class LeaderLacksRecordsError(RefusedError):
    """A leader that was elected cleanly lacks records that are committed in our log."""


class Truncate(NamedTuple):
    """Cut the log back: from `offset` on the leader has something else."""

    offset: Offset


class FindPlace(NamedTuple):
    """Ask where the leader's log begins and ends: ours ends outside of it, or begins beyond."""


class RaiseStart(NamedTuple):
    """Let go of records that the leader no longer has."""

    offset: Offset


class BeginAnew(NamedTuple):
    """Let go of all: it lies below the leader's start, and may be other than what lay there."""

    offset: Offset


class Flush(NamedTuple):
    """Make durable what was appended, before the leader is told that we have it."""


Duty = Truncate | FindPlace | RaiseStart | BeginAnew | Flush
"""What must be done, and may take time, before the partition is asked for again."""


class Followed:
    """One partition that follows this leader."""

    __slots__ = (
        "asked_in",
        "backoff_ms",
        "key",
        "lag",
        "leader_epoch",
        "partition",
        "problem",
        "retry_at_ms",
        "shared_end",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key = partition.key
        self.leader_epoch = partition.leader_epoch
        self.asked_in = NOT_ASKED
        """The number of the request that asks for it: answers to earlier ones do not count."""
        self.lag = NOT_KNOWN
        """Committed records that we lacked when the leader answered last."""
        self.retry_at_ms = 0
        self.backoff_ms = 0
        self.problem: str | None = None
        """Why it does not follow, where waiting alone does not heal that."""
        self.shared_end: Offset | None = None
        """Up to where the leader's log is ours, where that is before our log's start."""

    @property
    def name(self) -> str:
        """How people know the partition."""
        return f"{self.partition.topic}-{self.partition.index}"

    @property
    def is_throttled(self) -> bool:
        """Whether its topic has its replication throttled on the follower's side."""
        partition = self.partition
        throttled = partition.config.follower_replication_throttled_replicas
        return throttled.has(partition.index, partition.local_id)

    @property
    def is_in_sync(self) -> bool:
        """Whether it is among the in-sync replicas, or has all that is committed."""
        return self.lag == 0 or self.partition.local_id in self.partition.isr

    @property
    def log(self) -> Log:
        """The replica's log; a partition is followed only while it has one."""
        log = self.partition.log
        assert log is not None
        return log


class FollowerFetch:
    """Everything this broker follows one leader for."""

    def __init__(self, leader_id: NodeId, config: BrokerConfig, quota: ReplicationQuota) -> None:
        self.leader_id = leader_id
        self.session = FetchSessionHandler()
        self._config = config
        self._followed: dict[TopicIdPartition, Followed] = {}
        self._set_aside: dict[TopicIdPartition, Followed] = {}
        self._unflushed: dict[TopicIdPartition, Followed] = {}
        self._quota = quota
        self._throttled: dict[TopicIdPartition, Followed] = {}
        """Left out of requests while the quota is exceeded."""
        self._throttled_until_ms = NEVER_MS
        self._request_number = 0

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def followed(self) -> Collection[Followed]:
        """Every partition that follows, set aside or not."""
        return self._followed.values()

    @property
    def set_aside_count(self) -> int:
        """How many are left alone for a while."""
        return len(self._set_aside)

    # ---- whom to follow

    def follow(self, partition: Partition) -> None:
        """Follow a partition from the next request on."""
        followed = Followed(partition)
        assert followed.key not in self._followed
        self._followed[followed.key] = followed
        self._ask(followed)

    def leave(self, key: TopicIdPartition) -> Followed | None:
        """Follow a partition no longer; an answer under way changes nothing of it."""
        followed = self._followed.pop(key, None)
        if followed is not None:
            self._set_aside.pop(key, None)
            self._unflushed.pop(key, None)
            self._throttled.pop(key, None)
            self.session.forget(key)
        return followed

    def find(self, key: TopicIdPartition) -> Followed | None:
        """Return the partition if it is followed."""
        return self._followed.get(key)

    def problems(self) -> Iterator[str]:
        """Yield a sentence for each partition that is set aside."""
        for followed in self._set_aside.values():
            if followed.problem is not None:
                yield f"{followed.name} does not follow broker {self.leader_id}: {followed.problem}"

    # ---- asking

    def request(self, now_ms: int, broker_epoch: int) -> FetchRequest | None:
        """Return the next fetch, None while there is nothing to fetch."""
        for followed in [one for one in self._set_aside.values() if one.retry_at_ms <= now_ms]:
            del self._set_aside[followed.key]
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
        """When a partition that is set aside or throttled is due, None with none."""
        retry_ms = min((one.retry_at_ms for one in self._set_aside.values()), default=None)
        if not self._throttled:
            return retry_ms
        until_ms = self._throttled_until_ms
        return until_ms if retry_ms is None else min(retry_ms, until_ms)

    def _throttle(self, now_ms: int) -> None:
        """Leave throttled partitions that are not in sync out of requests, or in again.

        They wait together until the rate has fallen to the limit.
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
        """Whether something must be flushed before it can be asked for."""
        return bool(self._unflushed)

    def take_unflushed(self) -> list[Followed]:
        """Return what must be flushed before it can be asked for; say `done` of each after that."""
        unflushed, self._unflushed = list(self._unflushed.values()), {}
        return unflushed

    def _ask(self, followed: Followed) -> None:
        log = followed.log
        if log.failure is not None:
            self._hold_failed(followed, log.failure)
            return
        if followed.partition.is_flush_due:
            followed.asked_in = NOT_ASKED
            self._unflushed[followed.key] = followed
            return
        followed.asked_in = self._request_number + 1
        fetch_offset, last_epoch = whole_end_of(log)
        self.session.want(
            followed.key,
            FetchPartition(
                partition=followed.key.partition,
                current_leader_epoch=followed.leader_epoch,
                fetch_offset=fetch_offset,
                last_fetched_epoch=last_epoch,
                log_start_offset=log.log_start_offset,
                partition_max_bytes=self._config.replica_fetch_bytes_max,
            ),
        )

    def _hold_failed(self, followed: Followed, failure: str) -> None:
        """Ask no more for a log that takes nothing: the leader would think it caught up."""
        followed.problem = failure
        followed.retry_at_ms = NEVER_MS
        followed.asked_in = NOT_ASKED
        self._set_aside[followed.key] = followed
        self.session.forget(followed.key)

    # ---- answers

    def take(
        self, followed: Followed, data: PartitionData, *, now_ms: int, wall_ms: int
    ) -> Duty | None:
        """Take one partition's answer in; return what has to be done before asking again."""
        if followed.asked_in > self._request_number:
            return None  # it was asked for before we began to follow in this epoch
        try:
            duty = self._taken(followed, data, wall_ms)
        except OttlaError as error:
            self.set_aside(followed, error, now_ms)
            return None
        if duty is not None:
            followed.asked_in = NOT_ASKED
        return duty

    def _taken(self, followed: Followed, data: PartitionData, wall_ms: int) -> Duty | None:
        log = followed.log
        is_out_of_range = data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        if log.hole_offset is not None and (is_out_of_range or not data.error_code):
            is_within = log.hole_offset > log.log_start_offset
            return Truncate(log.hole_offset) if is_within else BeginAnew(log.hole_offset)
        if is_out_of_range:
            return FindPlace()
        if data.error_code:
            raise RefusedError(ErrorCode(row_of(data.error_code).code))
        if data.diverging_epoch.epoch >= 0:
            end = truncation_of(log, data.diverging_epoch)
            if end >= log.log_start_offset:
                return Truncate(end)
            followed.shared_end = end
            return FindPlace()
        records = data.records
        end_offset = log.end_offset
        if is_unvouched(log, Offset(data.log_start_offset), followed.leader_epoch):
            return BeginAnew(end_offset)
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
        log.update_high_watermark(Offset(data.high_watermark))
        start = min(Offset(data.log_start_offset), log.high_watermark)
        if start > log.log_start_offset:
            return RaiseStart(start)
        if log.end_offset != end_offset:
            if followed.partition.is_flush_due:
                return Flush()
            self._ask(followed)
        return None

    def done(self, followed: Followed) -> None:
        """Ask for a partition again: its duty is done."""
        if self._followed.get(followed.key) is followed:
            self._ask(followed)

    def hold_back(self, followed: Followed) -> None:
        """Ask no more for a partition whose duty takes long, until it is done; the others go on."""
        if self._followed.get(followed.key) is followed:
            self.session.forget(followed.key)

    def set_aside(self, followed: Followed, error: Exception, now_ms: int) -> None:
        """Leave a partition alone for a while, longer each time, and remember why."""
        if self._followed.get(followed.key) is not followed:
            return
        is_passing = isinstance(error, RefusedError) and error.code in PASSING
        longest_ms = self._config.replica_fetch_backoff_ms if is_passing else SET_ASIDE_MS_MAX
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
        self._set_aside[followed.key] = followed
        self.session.forget(followed.key)


def whole_end_of(log: Log) -> tuple[Offset, Epoch]:
    """Return up to where a log is whole, and its last epoch, or -1 if the log has a hole.

    A leader takes a follower that fetches from its end for one in sync.
    """
    if log.hole_offset is None:
        return log.end_offset, log.last_epoch
    return log.hole_offset, NO_EPOCH


def place_of(
    followed: Followed, leader_start: Offset, leader_end: Offset
) -> Truncate | BeginAnew | RaiseStart:
    """Return how a log finds its place in the leader's, which begins and ends there.

    A log that begins beyond all it shares with the leader's begins again where the leader's does:
    at the end of what they share it would lack, unnoticed, all the leader has before.
    """
    log = followed.log
    shared_end = leader_end if followed.shared_end is None else followed.shared_end
    followed.shared_end = None
    shared_end = min(shared_end, leader_end)
    if shared_end < log.log_start_offset or leader_start > log.end_offset:
        return BeginAnew(leader_start)
    if shared_end < log.end_offset:
        return Truncate(shared_end)
    return RaiseStart(min(leader_start, log.high_watermark))


def is_unvouched(log: Log, leader_start: Offset, leader_epoch: Epoch) -> bool:
    """Return whether all that we hold ends where the leader's log begins, and none vouches for it.

    The leader cannot say where our logs part: it has deleted that.  What no leader has called
    committed, and this one has not sent, may be something else than what lay there; it would come
    back to light if we lost our new log start, and its producers' sequences would count at once.
    """
    return (
        log.log_start_offset < log.end_offset == leader_start
        and log.high_watermark < leader_start
        and log.last_epoch < leader_epoch
    )


def truncation_of(log: Log, diverging: EpochEndOffset) -> Offset:
    """Return where to cut our log, by the last epoch of the leader's that is not above ours.

    Beyond the leader's end of that epoch it has only later ones; beyond our end of it (or, where
    we do not know it, of the one before) so do we.  What is left may still differ in an earlier
    epoch: then the next fetch is told so (KIP-279).
    """
    ours = log.end_offset_for_epoch(Epoch(diverging.epoch))
    end_offset = log.end_offset if ours.epoch == NO_EPOCH else ours.offset
    return min(end_offset, Offset(diverging.end_offset), log.end_offset)
