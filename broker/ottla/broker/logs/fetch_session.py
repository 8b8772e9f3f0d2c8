"""Fetch sessions: a client names its partitions once, and afterwards only changes (KIP-227).

Pure. For each partition a session stores the requested position and the offsets that were last
reported. An incremental request may thus be empty, and its response contains only partitions with
records or changed offsets. A session also lists the partitions that are due to be read. A partition
is due if a request named it again, an event occurred in it, or it has more records than the last
response contained. A fetch reads only the due partitions, so that a thousand idle partitions cost
nothing.

The cache has a fixed number of slots. If all are in use, a new session may evict another session by
Kafka's rules: a follower's session before a consumer's, and a larger session before a smaller one.
A session that was used within the last two minutes is not evicted for an equal one.

Invariants: OneEpochAtATime (a repeated or lost request is detected), SlotsNeverExceeded,
SettledMeansSilent (a partition that is neither due nor failed has nothing to report).
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from itertools import islice
from uuid import UUID

from ottla.broker.logs.fetch_read import FetchForm, FetchTarget, TargetKey
from ottla.broker.replicas.partition import Partition
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.limits import INT32_MAX, INT64_MAX
from ottla.model.seams import Rng
from ottla.wire.flat.flat_fetch import FlatFetch
from ottla.wire.messages.fetch_request import FetchPartition

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1

EVICTION_MS_MIN = 120_000
"""Time in milliseconds after its last use during which a fetch session is not evicted for another
session of equal rank. With a shorter time, many consumers evict each other in turn. With a longer
time, slots of closed clients stay occupied."""

FAILED_LOOKED_AT = 200
"""Maximum number of a session's failed partitions that one fetch tries to read again. With a larger
value, even a short request can cost much. With a smaller value, the session notices later that a
partition is readable again."""

CHECKED_AGAIN = 500
"""Maximum number of partitions in a fetch session whose permissions one fetch checks after a change
of ACLs. With a larger value, the event loop is blocked longer. With a smaller value, new
permissions of an idle topic take effect later."""

PARTITIONS_MAX = 200_000
"""Maximum number of partitions in all fetch sessions together. This number of partitions takes
about 100 MB. When the maximum is reached, clients fetch without a session."""


class FetchSession:
    """Partitions that one client fetches repeatedly, and their state. `due` lists the partitions to
    read next."""

    __slots__ = (
        "cached_count",
        "created_ms",
        "due",
        "epoch",
        "failed",
        "is_privileged",
        "last_used_ms",
        "on_due",
        "permissions_version",
        "replica_id",
        "session_id",
        "targets",
        "unchecked",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        targets: dict[TargetKey, FetchTarget],
        *,
        replica_id: int,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> None:
        self.session_id = session_id
        self.targets = targets
        self.replica_id = replica_id
        """Broker id of the follower that owns the fetch session; negative for a consumer."""
        self.is_privileged = replica_id >= 0
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.last_used_ms = now_ms
        self.cached_count = len(targets)
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.due: dict[FetchTarget, None] = dict.fromkeys(targets.values())
        self.failed: dict[FetchTarget, None] = {}
        """Partitions of the fetch session that could not be read, in order of failure, oldest
        first. A client may name any number of unknown partitions, so each fetch tries only some of
        them again."""
        self.on_due: Callable[[], object] = lambda: None
        """Function that is called when a waiting fetch of the session may have enough records."""
        self.permissions_version = 0
        """Version of the client's permissions when the fetch session last checked them."""
        self.unchecked: deque[FetchTarget] = deque()
        """Partitions of the fetch session whose permissions must be checked again, since READ on
        their topics may have been granted or revoked."""
        for target in targets.values():
            target.session = self

    def check_again(self, permissions_version: int) -> None:
        """Schedule a permission check of every partition in the session if the client's permissions
        have changed. Each fetch checks a limited number of partitions.

        Partitions with new records are checked when they are read. This method is for partitions
        without new records.
        """
        if self.permissions_version != permissions_version:
            self.permissions_version = permissions_version
            self.unchecked = deque(self.targets.values())
        for _ in range(min(len(self.unchecked), CHECKED_AGAIN)):
            target = self.unchecked.popleft()
            if self.targets.get(target.key) is target:
                self.due[target] = None

    def ask(
        self,
        key: TargetKey,
        topic: str,
        topic_id: UUID,
        index: int,
        asked: FetchPartition | FlatFetch,
    ) -> FetchTarget:
        """Add a partition to the fetch session, or replace its position and limits by the values in
        a request. Returns the partition's fetch target."""
        target = self.targets.get(key)
        if target is None:
            target = self.targets[key] = FetchTarget(topic, topic_id, index, asked, key)
            target.session = self
        else:
            if self.is_privileged:
                # A follower ignores the response to a request that it sent before it followed in
                # this leader epoch. Its next request shows that it lacks the offsets.
                if asked.log_start_offset >= 0:
                    target.seen_log_start_offset = asked.log_start_offset
                if asked.fetch_offset == target.fetch_offset:
                    target.seen_high_watermark = -1
            target.ask(asked)
        self.due[target] = None
        if self.failed:
            self.failed.pop(target, None)
        return target

    def forget(self, request: FetchForm) -> list[FetchTarget]:
        """Remove the partitions that a Fetch request drops from the session. Returns their fetch
        targets."""
        targets = self.targets
        gone = []
        for forgotten in request.forgotten_topics_data:
            name = forgotten.topic_id if self.uses_topic_ids else forgotten.topic
            for index in forgotten.partitions:
                target = targets.pop((name, index), None)
                if target is not None:
                    self.due.pop(target, None)
                    self.failed.pop(target, None)
                    gone.append(target)
        return gone

    def note_event(self, target: FetchTarget, key: Hashable) -> None:
        """Mark a partition of the fetch session to be read next after an event, and notify a
        waiting fetch."""
        self.due[target] = None
        if self.failed:
            self.failed.pop(target, None)
        partition = target.partition
        # A follower that waits for records learns a new high watermark with the next records.
        is_patient = (
            self.is_privileged
            and partition is not None
            and key is partition.high_watermark_key
            and target.replica_high_watermark == INT64_MAX
        )
        if not is_patient:
            self.on_due()

    @property
    def look_at_count(self) -> int:
        """Number of due and failed partitions that the next fetch of the session reads."""
        return len(self.due) + min(len(self.failed), FAILED_LOOKED_AT)

    def to_look_at(self) -> list[FetchTarget]:
        """Return the partitions that the next fetch of the session reads, in the order in which
        they are read."""
        looked_at = list(self.due)
        if self.failed:
            looked_at += islice(self.failed, FAILED_LOOKED_AT)
        return looked_at

    def settle(
        self, target: FetchTarget, *, had_records: bool, has_more: bool, has_failed: bool = False
    ) -> None:
        """Mark a partition of the session as due, failed or idle after it was read.

        An idle partition is read again only after an event. A partition that had records is read
        last by the next fetch, so that no other partition starves. Failed partitions are retried in
        the order in which they failed.
        """
        if self.failed:
            self.failed.pop(target, None)
        if has_failed:
            self.due.pop(target, None)
            self.failed[target] = None
        elif had_records:
            self.due.pop(target, None)
            self.due[target] = None
        elif not has_more:
            self.due.pop(target, None)


class FetchSessionCache:
    """Open fetch sessions of a broker. Their number is at most `slot_count`."""

    __slots__ = (
        "_sessions",
        "eviction_count",
        "on_target_closed",
        "partition_count",
        "partition_count_max",
        "rng",
        "slot_count",
    )

    def __init__(self, slot_count: int, rng: Rng) -> None:
        self.slot_count = slot_count
        self.partition_count_max = PARTITIONS_MAX
        self.partition_count = 0
        """Number of partitions in all open fetch sessions."""
        self.rng = rng
        self.on_target_closed: Callable[[FetchTarget], None] = lambda target: None
        """Function that is called with each fetch target (partition) of a session that is
        closed."""
        self.eviction_count = 0
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        """Open fetch sessions by id, the least recently used first."""

    def __len__(self) -> int:
        return len(self._sessions)

    def continue_session(
        self, request: FetchForm, *, replica_id: int, uses_topic_ids: bool
    ) -> FetchSession:
        """Return the fetch session that an incremental request continues, and advance the session's
        epoch.

        Raises RefusedError if the epoch is out of order or the session belongs to another client.
        """
        session = self._sessions.get(request.session_id)
        if session is None or session.replica_id != replica_id:
            raise RefusedError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.uses_topic_ids != uses_topic_ids:
            raise RefusedError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != request.session_epoch:
            raise RefusedError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        self._check_room(request)
        session.epoch = next_epoch(session.epoch)
        return session

    def holds(self, session: FetchSession) -> bool:
        """Return whether a fetch session is still in the cache, and thus open."""
        return self._sessions.get(session.session_id) is session

    def _check_room(self, request: FetchForm) -> None:
        """Close a fetch session if the next request could make the cache exceed the maximum number
        of partitions. The client then sends a full fetch.

        Raises RefusedError if the session was closed.
        """
        count = 1
        if not isinstance(request, FlatFetch):
            count = sum(len(topic.partitions) for topic in request.topics)
        if self.partition_count + count > self.partition_count_max:
            self.close(request.session_id)
            raise RefusedError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """Update the time at which a fetch session was last used, and its number of partitions."""
        session.last_used_ms = now_ms
        self.partition_count += len(session.targets) - session.cached_count
        session.cached_count = len(session.targets)
        self._sessions.move_to_end(session.session_id)

    def close(self, session_id: int) -> None:
        """Close a fetch session and free its slot in the cache. An unknown id has no effect."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._release_targets(session)

    def _release_targets(self, session: FetchSession) -> None:
        self.partition_count -= session.cached_count
        for target in session.targets.values():
            target.session = None
            self.on_target_closed(target)

    def open(
        self,
        targets: dict[TargetKey, FetchTarget],
        *,
        replica_id: int,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> FetchSession | None:
        """Open a fetch session in a free slot of the cache, or in the slot of an evicted session.
        Returns None if no slot is free and no session may be evicted."""
        is_privileged = replica_id >= 0
        size = len(targets)
        if size > self.partition_count_max:
            return None
        while not self._has_room(size):
            if not self._evict_for(size, is_privileged, now_ms):
                return None
        session = FetchSession(
            self._fresh_id(),
            targets,
            replica_id=replica_id,
            uses_topic_ids=uses_topic_ids,
            now_ms=now_ms,
        )
        self._sessions[session.session_id] = session
        self.partition_count += size
        assert len(self._sessions) <= self.slot_count
        return session

    def _has_room(self, size: int) -> bool:
        return (
            len(self._sessions) < self.slot_count
            and self.partition_count + size <= self.partition_count_max
        )

    def _evict_for(self, size: int, is_privileged: bool, now_ms: int) -> bool:
        """Evict a fetch session to free its slot. Returns False if no session may be evicted.

        The least recently used session is evicted if it was idle for long enough. Otherwise, the
        session of the lowest rank that may be evicted is evicted.
        """
        if not self._sessions:
            return False
        stalest = next(iter(self._sessions.values()))
        if now_ms - stalest.last_used_ms > EVICTION_MS_MIN:
            victim = stalest
        else:
            victim = min(
                self._sessions.values(),
                key=lambda other: (other.is_privileged, other.cached_count, other.session_id),
            )
            is_old_enough = now_ms - victim.created_ms > EVICTION_MS_MIN
            if is_privileged and not victim.is_privileged:
                is_old_enough = True
            is_less = (victim.is_privileged, victim.cached_count) < (is_privileged, size)
            if not (is_old_enough and is_less):
                return False
        del self._sessions[victim.session_id]
        self._release_targets(victim)
        self.eviction_count += 1
        return True

    def _fresh_id(self) -> int:
        while True:
            session_id = 1 + self.rng.below(INT32_MAX - 1)
            if session_id not in self._sessions:
                return session_id


def next_epoch(epoch: int) -> int:
    """Return the next fetch session epoch. The largest epoch is followed by 1, since 0 opens a
    session."""
    return 1 if epoch == INT32_MAX else epoch + 1


def flat_target(flat: FlatFetch, partition: Partition, session: FetchSession | None) -> FetchTarget:
    """Return the fetch target for the partition of a `FlatFetch` (a fetch of one partition, read
    directly from its bytes). A request that continues a session uses the session's target. Any
    other request gets a new target."""
    topic_id, index = partition.topic_id, partition.index
    key = topic_id, index
    if session is not None:
        return session.ask(key, "", topic_id, index, flat)
    return FetchTarget("", topic_id, index, flat, key, partition)
