"""Fetch sessions: a consumer names its partitions once, then only what changed (KIP-227).

Pure.  A session remembers, per partition, what the client asks and what it was told last, so that
an incremental request may be empty and its answer holds only partitions with news.  It also knows
which partitions may have news: those that were asked for again, that had an event since, or whose
last answer left something over.  A fetch looks at these alone, so that a thousand idle partitions
cost it nothing.  The cache has a fixed number of slots; who gets one when all are taken is decided
as in Kafka: followers before consumers, larger sessions before smaller, but nobody loses a slot
used within the last two minutes to an equal.

Invariants: OneEpochAtATime (a request repeated or lost is noticed), SlotsNeverExceeded,
SettledMeansSilent (a partition that is neither due nor failed has nothing to tell).
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from uuid import UUID

from ottla.broker.logs.fetch_read import FetchTarget, TargetKey, asked_partitions
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.limits import INT32_MAX, INT64_MAX
from ottla.model.seams import Rng
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1

EVICTION_MS_MIN = 120_000
"""A slot in use that recently is not taken away by an equal.  Shorter makes many consumers steal
each other's sessions in turn; longer keeps slots of clients that have gone."""

FAILED_LOOKED_AT = 200
"""Of the partitions that could not be read, how many a fetch looks at again.  Higher lets a request
of 50 bytes cost more, lower finds sooner or later only by chance that one can be read now."""

CHECKED_AGAIN = 500
"""Of the partitions of a session, how many a fetch looks at when ACLs have changed.  Higher holds
the loop for longer, lower tells a client later of a topic that is idle."""

PARTITIONS_MAX = 200_000
"""Partitions that all sessions together hold; about 100 MB.  A client that finds no room fetches
without a session."""


class FetchSession:
    """The partitions one client fetches; `due` holds those to look at, in the order of service."""

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
        """Whose session it is: a follower's id, negative for consumers."""
        self.is_privileged = replica_id >= 0
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.last_used_ms = now_ms
        self.cached_count = len(targets)
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.due: dict[FetchTarget, None] = dict.fromkeys(targets.values())
        self.failed: dict[FetchTarget, None] = {}
        """Those that could not be read, the longest ago first: a client may name any number that
        nobody knows.  A fetch looks at some of them."""
        self.on_due: Callable[[], object] = lambda: None
        """Called when a waiting fetch of the session may have enough now."""
        self.permissions_version = 0
        """Of what the client may read, when that was looked at last."""
        self.unchecked: deque[FetchTarget] = deque()
        """Partitions that the client may perhaps not read any more, or again."""
        for target in targets.values():
            target.session = self

    def check_again(self, permissions_version: int) -> None:
        """Look at every partition again, some with each fetch, if other topics may be readable.

        One with records is looked at anyhow; this is for those with nothing to tell but that.
        """
        if self.permissions_version != permissions_version:
            self.permissions_version = permissions_version
            self.unchecked = deque(self.targets.values())
        for _ in range(min(len(self.unchecked), CHECKED_AGAIN)):
            target = self.unchecked.popleft()
            if self.targets.get(target.key) is target:
                self.due[target] = None

    def update(self, request: FetchRequest) -> list[FetchTarget]:
        """Take in what an incremental request adds, changes and forgets; return the forgotten."""
        for named in asked_partitions(request, self.uses_topic_ids):
            self.ask(*named)
        return self.forget(request)

    def ask(self, key: TargetKey, topic: str, topic_id: UUID, asked: FetchPartition) -> None:
        """Take in what the client asks of one partition from now on."""
        target = self.targets.get(key)
        if target is None:
            target = self.targets[key] = FetchTarget(topic, topic_id, asked, key)
            target.session = self
        else:
            target.ask(asked)
        self.due[target] = None
        if self.failed:
            self.failed.pop(target, None)

    def forget(self, request: FetchRequest) -> list[FetchTarget]:
        """Let go of what the client does not want any more, and return it."""
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
        """Something happened to a partition; let a waiting fetch see whether that is enough."""
        self.due[target] = None
        if self.failed:
            self.failed.pop(target, None)
        partition = target.partition
        # A follower waits for records; of a commit it hears with the next of them.
        is_patient = (
            self.is_privileged
            and partition is not None
            and key is partition.high_watermark_key
            and target.replica_high_watermark == INT64_MAX
        )
        if not is_patient:
            self.on_due()

    def note_records(self, asked: FetchPartition, high_watermark: int, log_start: int) -> None:
        """Take in a request that names the only partition, and that it is given records of it."""
        (target,) = self.targets.values()
        target.ask(asked)
        target.told_high_watermark = high_watermark
        target.told_log_start_offset = log_start
        self.due[target] = None
        self.epoch = next_epoch(self.epoch)

    @property
    def look_at_count(self) -> int:
        """How many partitions the next fetch looks at."""
        return len(self.due) + min(len(self.failed), FAILED_LOOKED_AT)

    def to_look_at(self) -> list[FetchTarget]:
        """Return what the next fetch looks at, in the order of service."""
        looked_at = list(self.due)
        if self.failed:
            looked_at += islice(self.failed, FAILED_LOOKED_AT)
        return looked_at

    def settle(
        self, target: FetchTarget, *, had_records: bool, has_more: bool, has_failed: bool = False
    ) -> None:
        """Look at a partition no more until something happens, unless it has something left.

        One that had records now is served last next time: nobody is starved.  One that failed is
        looked at again when its turn among those comes.
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
    """The sessions of a broker, at most `slot_count`."""

    __slots__ = (
        "_sessions",
        "eviction_count",
        "let_go",
        "partition_count",
        "partition_count_max",
        "rng",
        "slot_count",
    )

    def __init__(self, slot_count: int, rng: Rng) -> None:
        self.slot_count = slot_count
        self.partition_count_max = PARTITIONS_MAX
        self.partition_count = 0
        """Partitions of all sessions."""
        self.rng = rng
        self.let_go: Callable[[FetchTarget], None] = lambda target: None
        """Called with each partition that no session fetches any more."""
        self.eviction_count = 0
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        """Least recently used first."""

    def __len__(self) -> int:
        return len(self._sessions)

    def continue_session(
        self, request: FetchRequest, *, replica_id: int, uses_topic_ids: bool
    ) -> FetchSession:
        """Return the session an incremental request belongs to.

        Raises RefusedError for a request out of step, or of another asker than the session's.
        """
        session = self._sessions.get(request.session_id)
        if session is None or session.replica_id != replica_id:
            raise RefusedError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.uses_topic_ids != uses_topic_ids:
            raise RefusedError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != request.session_epoch:
            raise RefusedError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        self.check_room(request, request.topics)
        for target in session.update(request):
            self.let_go(target)
        session.epoch = next_epoch(session.epoch)
        return session

    def find_single(self, request: FetchRequest) -> FetchSession | None:
        """Return the session that a consumer's request continues, if it has one partition.

        None also where anything else may have to be said or done than to read that.
        """
        session = self._sessions.get(request.session_id)
        if (
            session is None
            or session.epoch != request.session_epoch
            or len(session.targets) != 1
            or session.failed
            or session.is_privileged
            or not session.uses_topic_ids
            or request.forgotten_topics_data
        ):
            return None
        return session

    def check_room(self, request: FetchRequest, asked: Iterable[FetchTopic]) -> None:
        """Close a session that could grow beyond the room: its client starts a full fetch.

        Raises RefusedError if there is no room.
        """
        if self.partition_count + sum(len(topic.partitions) for topic in asked) > (
            self.partition_count_max
        ):
            self.close(request.session_id)
            raise RefusedError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """Note that a session was used."""
        session.last_used_ms = now_ms
        self.partition_count += len(session.targets) - session.cached_count
        session.cached_count = len(session.targets)
        self._sessions.move_to_end(session.session_id)

    def close(self, session_id: int) -> None:
        """Give a slot back; an unknown id is fine."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._let_go_of(session)

    def _let_go_of(self, session: FetchSession) -> None:
        self.partition_count -= session.cached_count
        for target in session.targets.values():
            target.session = None
            self.let_go(target)

    def open(
        self,
        targets: dict[TargetKey, FetchTarget],
        *,
        replica_id: int,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> FetchSession | None:
        """Open a session if a slot is free or may be taken from another; else None."""
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
        """Take the slot of the stalest session, or of the least worthy that is old enough."""
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
        self._let_go_of(victim)
        self.eviction_count += 1
        return True

    def _fresh_id(self) -> int:
        while True:
            session_id = 1 + self.rng.below(INT32_MAX - 1)
            if session_id not in self._sessions:
                return session_id


def next_epoch(epoch: int) -> int:
    """Return the epoch that follows: 1 after the largest, for 0 opens a session."""
    return 1 if epoch == INT32_MAX else epoch + 1
