"""Records that one broker has locked for this consumer, and the acknowledgements that the broker
has not confirmed yet.

Pure. A record is *in hand* from its acquisition by the broker for this consumer until it is
settled: accepted, released, rejected, or skipped because the offset has no record. Its
acknowledgement then waits for a request, is in flight, and gets the result that the broker returns
for the partition.

The broker accepts or refuses all acknowledgements of one partition in a request together. If the
lock of a single record has ended, the broker refuses all of them. The acknowledgements are then
sent again in two halves, repeatedly, until only that record fails. Invariants:
- SettledOnce: a record that was acquired is acknowledged at most once, not counting renewals.
- OneRequest: at most one request with acknowledgements is in flight.
- EachHasAResult: each acknowledgement ends with success or with an error.
- InDoubtIsReported: INVALID_RECORD_STATE means that no attempt of the acknowledgement was stored.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from ottla.client.share.acknowledgement_ranges import (
    AcknowledgementRange,
    AcknowledgeType,
    merged,
    runs_of,
)
from ottla.model.errors import ErrorCode, OttlaError, RefusedError, code_of, row_of
from ottla.model.ids import TopicIdPartition, TopicPartition

RETRIED = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Error codes which mean that a broker does not know whether an acknowledgement was stored. The
records stay locked, and the acknowledgement is sent again until their lock ends."""
DEFAULT_LOCK_MS = 30_000
"""Assumed duration of acquisition locks, in ms, until a broker has reported the actual duration."""


class Outcome(Protocol):
    """Interface of objects that receive the results of acknowledgements."""

    def _expect(self, count: int) -> None:
        """Record that `count` further results will be received."""
        ...

    def _settle(self, error: OttlaError | None) -> None:
        """Receive one result: an error, or None for success."""
        ...


class Acknowledgement(NamedTuple):
    """One acknowledgement of several records with consecutive offsets."""

    first: int
    last: int
    kind: AcknowledgeType
    locked_ms: int
    """Time at which the lock of the records began or was last renewed, in ms."""
    outcome: Outcome
    doubt: ErrorCode | None = None
    """Error code of the last attempt that the broker may have stored although it returned an error.
    None if no attempt ended in this way."""

    def halves(self) -> "tuple[Acknowledgement, Acknowledgement]":
        """Split an acknowledgement of several records into two acknowledgements, each for half of
        the records."""
        middle = (self.first + self.last) // 2
        return self._replace(last=middle), self._replace(first=middle + 1)


class RecordInHand(NamedTuple):
    """A record that is locked for this consumer and has not been accepted, released or rejected
    yet."""

    serial: int
    """Serial number of the acquisition in which the record was locked. If the record is acquired
    again, it gets a new serial number."""
    locked_ms: int
    is_renewed: bool = True
    """True if the consumer may renew the record's lock automatically, without a request of the
    application. False after the broker has refused a renewal."""


class RecordsOfPartition:
    """Locked records and pending acknowledgements of one partition at one broker."""

    __slots__ = ("at", "held", "in_flight", "renewals", "waiting")

    def __init__(self, at: TopicPartition) -> None:
        self.at = at
        self.held: dict[int, RecordInHand] = {}
        self.waiting: deque[list[Acknowledgement]] = deque()
        """Groups of acknowledgements that wait for a request. Each request contains one group. New
        acknowledgements are added to the last group."""
        self.renewals: deque[list[Acknowledgement]] = deque()
        self.in_flight: list[Acknowledgement] = []

    @property
    def is_idle(self) -> bool:
        """True if no record of the partition is locked and no acknowledgement is pending."""
        return not (self.held or self.waiting or self.renewals or self.in_flight)


class RecordsInHand:
    """Records that one broker has locked for this consumer, and their acknowledgements."""

    def __init__(self) -> None:
        self.lock_ms = DEFAULT_LOCK_MS
        """Duration of acquisition locks, in ms, as reported by the broker."""
        self._parts: dict[TopicIdPartition, RecordsOfPartition] = {}
        self._serial = 0
        self.held_count = 0
        """Number of locked records that are not yet accepted, released or rejected."""
        self.waiting_count = 0
        """Number of records whose acknowledgement waits for a request. Renewals of locks do not
        count."""
        self.sent_count = 0
        """Number of records whose acknowledgement or renewal was sent. A record counts again for
        each further request."""
        self.failed_count = 0
        """Number of records whose acknowledgement or renewal was sent, and was then refused by the
        broker or got no response."""

    # Records.

    def acquire(
        self, key: TopicIdPartition, at: TopicPartition, offsets: Iterable[int], now_ms: int
    ) -> int:
        """Add records that the broker has acquired for this consumer. Returns the serial number of
        the acquisition."""
        part = self._parts.setdefault(key, RecordsOfPartition(at))
        self._serial += 1
        before = len(part.held)
        part.held.update(dict.fromkeys(offsets, RecordInHand(self._serial, now_ms)))
        self.held_count += len(part.held) - before
        return self._serial

    def unsettled(self, key: TopicIdPartition, offsets: Iterable[int], serial: int) -> list[int]:
        """Return the offsets of records that were locked by the acquisition `serial`, are still
        locked, and have not been accepted, released or rejected yet."""
        part = self._parts.get(key)
        if part is None:
            return []
        held = part.held
        return [one for one in offsets if (found := held.get(one)) and found.serial == serial]

    def locked_ms(self, key: TopicIdPartition, offsets: Iterable[int], serial: int) -> int | None:
        """Return the earliest time, in ms, at which a lock of an acquisition started or was last
        renewed. Only records at `offsets` that the acquisition `serial` still locks are considered.
        Returns None if no such record is left."""
        part = self._parts.get(key)
        if part is None:
            return None
        found = [one for one in map(part.held.get, offsets) if one and one.serial == serial]
        return min((one.locked_ms for one in found), default=None)

    def settle(
        self,
        key: TopicIdPartition,
        offsets: Sequence[int],
        kind: AcknowledgeType,
        outcome: Outcome,
    ) -> None:
        """Add acknowledgements, or renewals of locks, for locked records at ascending offsets.
        `kind` is the acknowledgement type. `outcome` receives the results."""
        part = self._parts[key]
        is_renewal = kind is AcknowledgeType.RENEW
        groups = part.renewals if is_renewal else part.waiting
        if not groups:
            groups.append([])
        runs = runs_of(offsets)
        outcome._expect(len(runs))
        for first, last in runs:
            held = [part.held[one] for one in range(first, last + 1)]
            locked_ms = min(one.locked_ms for one in held)
            groups[-1].append(Acknowledgement(first, last, kind, locked_ms, outcome))
            if not is_renewal:
                for offset in range(first, last + 1):
                    del part.held[offset]
                self.held_count -= last + 1 - first
                self.waiting_count += last + 1 - first

    def renew_due(self, now_ms: int, outcome: Outcome) -> None:
        """Add renewals for records that have been locked for half the duration of a lock. `outcome`
        receives the results."""
        for key, part in self._parts.items():
            due = [
                offset
                for offset, one in part.held.items()
                if one.is_renewed and now_ms - one.locked_ms >= self.lock_ms // 2
            ]
            if due and not part.renewals:
                self.settle(key, sorted(due), AcknowledgeType.RENEW, outcome)

    def renewal_due_ms(self) -> int | None:
        """Return the time, in ms, at which the next lock should be renewed, or None if no record is
        locked."""
        due = [
            one.locked_ms
            for part in self._parts.values()
            for one in part.held.values()
            if one.is_renewed
        ]
        return min(due) + self.lock_ms // 2 if due else None

    def release_all(self, outcome: Outcome) -> None:
        """Add a release for every locked record, so that the broker can deliver it to any
        consumer."""
        for key, part in self._parts.items():
            if part.held:
                self.settle(key, sorted(part.held), AcknowledgeType.RELEASE, outcome)

    # Requests.

    @property
    def has_renewals(self) -> bool:
        """True if renewals of locks wait for a request."""
        return any(part.renewals for part in self._parts.values())

    @property
    def is_acknowledging(self) -> bool:
        """True if an acknowledgement other than a renewal has no result yet."""
        return any(part.waiting or part.in_flight for part in self._parts.values())

    def waiting_keys(self) -> set[TopicIdPartition]:
        """Return the partitions with acknowledgements that wait for a request."""
        return {key for key, part in self._parts.items() if part.waiting}

    def take(self, *, renewals: bool = False) -> dict[TopicIdPartition, list[AcknowledgementRange]]:
        """Return the acknowledgements, or the renewals of locks, for the next request.

        The returned acknowledgements count as in flight until `on_results` or `lose` is called.
        """
        found: dict[TopicIdPartition, list[AcknowledgementRange]] = {}
        for key, part in self._parts.items():
            assert not part.in_flight, "one request at a time"
            groups = part.renewals if renewals else part.waiting
            if not groups:
                continue
            part.in_flight = groups.popleft()
            if renewals:
                # A record may have been settled since, or its renewal requested twice.
                part.in_flight = self._renewable(part, part.in_flight)
                if not part.in_flight:
                    continue
            else:
                self.waiting_count -= _count(part.in_flight)
            self.sent_count += _count(part.in_flight)
            found[key] = merged((one.first, one.last, one.kind) for one in part.in_flight)
        return found

    def _renewable(
        self, part: RecordsOfPartition, group: Iterable[Acknowledgement]
    ) -> list[Acknowledgement]:
        """Return the renewals whose records are still locked for this consumer, each record
        once."""
        found: list[Acknowledgement] = []
        renewed: set[int] = set()
        for one in group:
            offsets = [
                offset
                for offset in range(one.first, one.last + 1)
                if offset in part.held and offset not in renewed
            ]
            renewed.update(offsets)
            runs = runs_of(offsets)
            one.outcome._expect(len(runs))
            one.outcome._settle(None)
            found += [one._replace(first=first, last=last) for first, last in runs]
        return found

    def on_results(
        self, results: Mapping[TopicIdPartition, tuple[int, str | None]], now_ms: int
    ) -> bool:
        """Process the error code and message of each partition of the last request.

        Returns True if an acknowledgement will be sent again after a while.
        """
        has_retries = False
        for key, part in list(self._parts.items()):
            if part.in_flight:
                unknown = (ErrorCode.UNKNOWN_SERVER_ERROR, "the broker gave no result")
                code, message = results.get(key, unknown)
                has_retries |= self._on_result(part, code_of(code), message, now_ms)
            if part.is_idle:
                del self._parts[key]
        return has_retries

    def _on_result(
        self, part: RecordsOfPartition, code: ErrorCode, message: str | None, now_ms: int
    ) -> bool:
        group, part.in_flight = part.in_flight, []
        if code is ErrorCode.NONE:
            for one in group:
                if one.kind is AcknowledgeType.RENEW:
                    self._note_renewal(part, one, now_ms)
                one.outcome._settle(None)
            return False
        groups = part.renewals if group[0].kind is AcknowledgeType.RENEW else part.waiting
        if code in RETRIED:
            self._put_back(part, groups, [one._replace(doubt=code) for one in group])
            return True
        if code is ErrorCode.INVALID_RECORD_STATE:
            halves = _halves(group)
            if len(halves) > 1:
                for half in reversed(halves):
                    self._put_back(part, groups, half)
                return False
        error = RefusedError(code, f"{part.at}: {message or row_of(code).meaning}")
        self.failed_count += _count(group)
        for one in group:
            if one.kind is AcknowledgeType.RENEW:
                for offset in range(one.first, one.last + 1):
                    if (held := part.held.get(offset)) is not None:
                        part.held[offset] = held._replace(is_renewed=False)
            if code is ErrorCode.INVALID_RECORD_STATE and one.doubt is not None:
                one.outcome._settle(in_doubt(part.at, one.first, one.doubt))
            else:
                one.outcome._settle(error)
        return False

    def _put_back(
        self,
        part: RecordsOfPartition,
        groups: deque[list[Acknowledgement]],
        group: list[Acknowledgement],
    ) -> None:
        groups.appendleft(group)
        if groups is part.waiting:
            self.waiting_count += _count(group)

    def _note_renewal(self, part: RecordsOfPartition, one: Acknowledgement, now_ms: int) -> None:
        for offset in range(one.first, one.last + 1):
            if (held := part.held.get(offset)) is not None:
                part.held[offset] = held._replace(locked_ms=now_ms)

    def refuse(self, key: TopicIdPartition, error: OttlaError) -> None:
        """Fail the acknowledgements of a partition that `take` has returned, because they cannot be
        sent."""
        group, self._parts[key].in_flight = self._parts[key].in_flight, []
        for one in group:
            one.outcome._settle(error)

    # Losses.

    def expire(self, now_ms: int) -> None:
        """Fail the waiting acknowledgements of records whose lock must have ended by `now_ms`."""
        end_ms = now_ms - self.lock_ms
        for key, part in list(self._parts.items()):
            for groups in (part.waiting, part.renewals):
                for group in [one for one in groups if any(a.locked_ms <= end_ms for a in one)]:
                    late = [one for one in group if one.locked_ms <= end_ms]
                    group[:] = [one for one in group if one.locked_ms > end_ms]
                    if not group:
                        groups.remove(group)
                    if groups is part.waiting:
                        self.waiting_count -= _count(late)
                    for one in late:
                        if one.doubt is None:
                            one.outcome._settle(lock_ended(part.at, one.first))
                        else:
                            one.outcome._settle(in_doubt(part.at, one.first, one.doubt))
            if part.is_idle:
                del self._parts[key]

    def drop_held(self, key: TopicIdPartition, offsets: Iterable[int], serial: int) -> None:
        """Remove records whose lock has ended, without an acknowledgement."""
        for offset in self.unsettled(key, offsets, serial):
            del self._parts[key].held[offset]
            self.held_count -= 1

    def lose_partition(self, key: TopicIdPartition, error: OttlaError) -> None:
        """Remove the locked records of a partition that the broker no longer leads.

        Pending acknowledgements of the partition fail with `error`.
        """
        part = self._parts.pop(key, None)
        if part is None:
            return
        self.held_count -= len(part.held)
        self.waiting_count -= sum(map(_count, part.waiting))
        self.failed_count += _count(part.in_flight)
        for group in (part.in_flight, *part.waiting, *part.renewals):
            for one in group:
                one.outcome._settle(error)

    def lose(self, error: OttlaError) -> None:
        """Remove all locked records, because the share session is lost. All pending
        acknowledgements fail with `error`."""
        for key in list(self._parts):
            self.lose_partition(key, error)


def lock_ended(at: TopicPartition, offset: int) -> RefusedError:
    """Return the error for a record whose lock has ended before the record was acknowledged."""
    return RefusedError(
        ErrorCode.INVALID_RECORD_STATE,
        f"the lock of {at} at offset {offset} has ended; the record is delivered again",
    )


def in_doubt(at: TopicPartition, offset: int, code: ErrorCode) -> RefusedError:
    """Return the error for an acknowledgement that the broker refuses now, but may have stored at
    an earlier attempt. `code` is the error code of that attempt."""
    return RefusedError(
        code,
        f"the acknowledgement of {at} at offset {offset} may have been stored, or the record is "
        f"delivered again: an attempt was answered with {code.name}, and the lock has ended since",
    )


def _count(group: Iterable[Acknowledgement]) -> int:
    return sum(one.last + 1 - one.first for one in group)


def _halves(group: list[Acknowledgement]) -> list[list[Acknowledgement]]:
    """Split a group of acknowledgements into two groups. A group with a single record is returned
    unchanged."""
    if len(group) > 1:
        middle = len(group) // 2
        return [group[:middle], group[middle:]]
    (one,) = group
    if one.first == one.last:
        return [group]
    one.outcome._expect(1)
    return [[half] for half in one.halves()]
