"""Share partition: delivery of the records of one partition to the members of one share group
(KIP-932).

Pure; times are parameters. `acquire` acquires records for a member, `acknowledge` ends their
acquisition, `end_locks` and `release_member` release them. Each change that must survive a failover
becomes a part of a write. `next_write` returns the write to send to the persister, and `on_written`
applies its outcome.

One write is in flight at a time. Changes that are made meanwhile share the next write. Kafka sends
one write for each request. Kafka's writes may therefore overtake each other, and cannot contain the
start offset that results from them.

Invariants:

- OneOwner: a record is acquired by at most one member.
- DeliveredWithinTheLimit: no record is acquired more often than the delivery count limit.
- SettledStaysSettled: a record that is acknowledged or archived is never acquired again.
- NothingSkipped: the start offset never passes a record that is neither acknowledged nor archived.
- ArchivedAfterItsLetter: a record in state Archiving is archived only after its dead letter is
  written, or if the record or the dead letter topic no longer exists.

Records whose lock has expired can be acquired before the write is done, as in Kafka. If records are
delayed, have a back-off or are ordered by key or priority, `order` (see `ordering/`) selects the
available records that are delivered next. Otherwise `order` is None.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.broker.coordinators.effects import Instant
from ottla.broker.coordinators.share_persister import ShareState, StateBatch
from ottla.broker.shares.acquired_ranges import AcquiredRange, add_range, throttled_size
from ottla.broker.shares.dead_letters import DeadLetter, DeadLetters, LetterStep
from ottla.broker.shares.delivery_window import (
    NO_DEADLINE_MS,
    NO_MEMBER,
    TERMINAL,
    DeliveryState,
    DeliveryWindow,
    Span,
)
from ottla.broker.shares.ordering.delivery_order import DeliveryOrder
from ottla.broker.shares.ordering.ordering_rules import OrderingRules
from ottla.broker.shares.ordering.record_traits import PLAIN, Traits
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError

NEVER_MS = 1 << 62

STORED_SPANS_MAX = 40_000
"""Maximum number of stored spans (ranges of records) of a delivery window. Above it, records are
acquired out of order only near the window's start. A span takes 20 bytes, so a snapshot stays below
1 MB. With a smaller value, due records wait behind many others. With a larger value, the state may
not fit into one record."""


class AckType:
    """Types of acknowledgements in share requests, with their numbers in the protocol."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class ShareRules(NamedTuple):
    """Settings of a share group that each of its share partitions applies."""

    lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    record_locks_max: int = 2_000
    """Maximum number of offsets in a share partition's delivery window, from start to end
    offset."""
    is_renewable: bool = True
    has_dead_letters: bool = False
    """True if records become dead letters before they are archived (KIP-1191)."""


class LogBatch(NamedTuple):
    """Batch of records in the log that a fetch of a share group has read."""

    first_offset: int
    last_offset: int
    is_delivered: bool = True
    """False for a control batch, and for a batch of an aborted transaction if the group reads only
    committed records."""


class AckBatch(NamedTuple):
    """Acknowledgement of a range of records: one type for all, or one type for each record."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class Transition:
    """State changes by one acknowledgement that are not durable yet. They are rolled back if their
    write fails."""

    __slots__ = ("batches", "code", "is_of_letters", "is_rejected")

    def __init__(self, *, is_of_letters: bool = False) -> None:
        self.batches: list[StateBatch] = []
        self.code: ErrorCode | None = None
        """Error code with which the write of the change was answered, or None before the answer."""
        self.is_of_letters = is_of_letters
        """True if the change is a step of dead letters. Such a change does not result from an
        acknowledgement, and is repeated if its write fails."""
        self.is_rejected: set[int] = set()
        """Set of the first offsets of the spans whose records a consumer rejected."""


class ShareStateWrite(NamedTuple):
    """Write to the persister: the changed states and the start offset of a share partition."""

    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


class SharePartition:
    """Delivery state of one share partition, stored by the leader of its topic partition."""

    def __init__(self, start_offset: int, rules: ShareRules) -> None:
        self.rules = rules
        """Settings of the share group. They may be replaced at any time."""
        self.window = DeliveryWindow(start_offset)
        self.lock_end_count = 0
        """Number of records whose acquisition lock has expired so far."""
        self.letters = DeadLetters()
        """Dead letters of the records that are being archived (state Archiving), by offset."""
        self.order: DeliveryOrder | None = None
        """Order of the deliveries, or None if records are delivered in the order of the log."""
        self._log_start_offset = start_offset
        self._available_from = start_offset
        """Lower bound of the offsets of available records in the delivery window."""
        self._lock_end_ms = NEVER_MS
        """Lower bound in milliseconds of the time at which the next acquisition lock expires."""
        self._due: list[Transition] = []
        """State changes (transitions) that the next write will contain."""
        self._released: list[StateBatch] = []
        """State changes that the next write will contain and that are never rolled back."""
        self._sent: list[Transition] | None = None
        """State changes (transitions) in the write in flight, or None if no write is in flight."""

    # ---- durable state

    @classmethod
    def load(cls, state: ShareState, rules: ShareRules) -> "SharePartition":
        """Return a share partition restored from a durable state whose start offset is known.

        Records between the batches of the state are available with delivery count 0. Raises
        CorruptDataError if the batches overlap or are below the start offset.
        """
        share = cls(state.start_offset, rules)
        window = share.window
        for batch in state.batches:
            if not window.end_offset <= batch.first_offset <= batch.last_offset:
                raise CorruptDataError(f"the state batch at offset {batch.first_offset}")
            if window.end_offset < batch.first_offset:
                gap = Span(window.end_offset, batch.first_offset - 1, DeliveryState.AVAILABLE, 0)
                window.append(gap, is_gap=True)
            kind = DeliveryState(batch.delivery_state)
            if kind == DeliveryState.ARCHIVING:
                # The outcome of a dead letter sent by an earlier leader is unknown. Its cause is
                # not stored.
                share.letters.add(
                    batch.first_offset,
                    batch.last_offset,
                    batch.delivery_count,
                    LetterStep.SEND,
                    is_rejected=batch.delivery_count < rules.delivery_count_limit,
                )
            window.append(Span(batch.first_offset, batch.last_offset, kind, batch.delivery_count))
        window.advance()
        return share

    def next_write(self) -> ShareStateWrite | None:
        """Return the write to send to the persister now. Returns None if nothing changed or a write
        is in flight."""
        if self._sent is not None or not (self._due or self._released):
            return None
        sent, self._sent, self._due = self._due, self._due, []
        released, self._released = self._released, []
        batches = list(released)
        for transition in sent:
            batches += transition.batches
        start_offset, settled_count, is_leading = self.window.start_offset, 0, True
        for span in self.window.spans:
            # No other write is in flight, so that each transition is durable once this one is.
            if span.state not in TERMINAL:
                is_leading = False
            elif is_leading:
                start_offset = span.last + 1
            else:  # Not `size`: with many delayed records there are thousands of spans.
                settled_count += span.last - span.first + 1
        return ShareStateWrite(start_offset, settled_count, tuple(batches))

    def on_written(self, code: ErrorCode, now_ms: int) -> list[Transition]:
        """End the write in flight. Returns the transitions that it contained, with their outcome.

        If the write failed, its records are acquired by their members again. Records whose lock has
        expired meanwhile are released.
        """
        sent = self._sent
        assert sent is not None, "a write is in flight"
        self._sent = None
        for transition in sent:
            transition.code = code
            for batch in transition.batches:
                for span in self.window.cut(batch.first_offset, batch.last_offset):
                    if span.transition is transition:
                        self._end_transition(span, code, now_ms)
                self.window.join(batch.first_offset, batch.last_offset)
        self.window.advance()
        return sent

    def _end_transition(self, span: Span, code: ErrorCode, now_ms: int) -> None:
        transition, span.transition = span.transition, None
        assert isinstance(transition, Transition)
        if transition.is_of_letters:
            self._end_letter_step(span, code, now_ms)
            return
        if code is not ErrorCode.NONE:
            if span.deadline_ms > now_ms:
                span.state = DeliveryState.ACQUIRED
                return
            span.state = self._released_state(span)
            if span.state == DeliveryState.ARCHIVING:
                self._add_letters(span, LetterStep.STORE_ARCHIVING, is_rejected=False)
        elif span.state == DeliveryState.ARCHIVING:
            is_rejected = span.first in transition.is_rejected
            self._add_letters(span, LetterStep.SEND, is_rejected=is_rejected)
        span.member_id, span.deadline_ms = NO_MEMBER, NO_DEADLINE_MS
        if span.state == DeliveryState.ARCHIVING and span.first < self._log_start_offset:
            self._archive_unsent(span)
        if span.state == DeliveryState.AVAILABLE:
            if span.first < self._log_start_offset:
                span.state = DeliveryState.ARCHIVED
            else:
                self._note_available(span.first)
        if self.order is not None:
            self._note_end(self.order, span, now_ms)

    def _note_end(self, order: DeliveryOrder, span: Span, now_ms: int) -> None:
        """Report the end of records' acquisition to the order of deliveries."""
        if span.state == DeliveryState.AVAILABLE:
            order.on_released(span.first, span.last, span.count, now_ms)
        else:
            order.on_settled(span.first, span.last, now_ms)

    @property
    def is_idle(self) -> bool:
        """True if no change waits for the persister, and no dead letter is waiting to be
        written."""
        return self._sent is None and not (self._due or self._released or self.letters)

    # ---- acquisition

    def fetch_offset(self) -> int | None:
        """Return the offset from which to read records to acquire. Returns None if the delivery
        window is full and contains no available record."""
        window = self.window
        at = max(0, window.index_of(self._available_from))
        for span in window.spans[at:]:
            if span.is_available:
                self._available_from = span.first
                return span.first
        self._available_from = window.end_offset
        return window.end_offset if window.size < self.rules.record_locks_max else None

    def acquire(
        self,
        member_id: str,
        batches: Iterable[LogBatch],
        *,
        fetch_offset: int,
        records_max: int,
        is_strict: bool,
        batch_size: int,
        now_ms: int,
    ) -> list[AcquiredRange]:
        """Acquire available records from batches that the log returned for `fetch_offset`.

        Offsets between the batches no longer have records, and are archived. If `is_strict`, at
        most `records_max` records are acquired (KIP-1206). Otherwise whole batches are acquired
        until they have that many records. Acquired ranges then end at a batch boundary once they
        have `batch_size` records.
        """
        self._advance_to_log_start()
        deadline_ms = now_ms + self.rules.lock_duration_ms
        found: list[AcquiredRange] = []
        count, at = 0, max(fetch_offset, self.window.start_offset)
        for batch in batches:
            if batch.last_offset < at:
                continue
            if not is_strict and found and found[-1].size >= batch_size > 0:
                found.append(AcquiredRange(batch.first_offset, batch.first_offset - 1, 0))
            if batch.first_offset > at:
                self._archive(at, batch.first_offset - 1)
            first = max(at, batch.first_offset)
            if not batch.is_delivered:
                self._archive(first, batch.last_offset)
            else:
                left = records_max - count if is_strict else NEVER_MS
                given, is_last = self._acquire_in(batch, first, left, is_strict, bool(count), found)
                count += given
                if is_last or count >= records_max:
                    break
            at = batch.last_offset + 1
        found = [acquired for acquired in found if acquired.delivery_count]
        self.own(member_id, found, deadline_ms)
        self.window.advance()
        return found

    def own(self, member_id: str, found: Sequence[AcquiredRange], deadline_ms: int) -> None:
        """Acquire available records for a member, whose acquisition lock expires at
        `deadline_ms`."""
        for first_offset, last_offset, _ in found:
            for span in self.window.cut(first_offset, last_offset):
                assert span.is_available
                span.state = DeliveryState.ACQUIRED
                span.count += 1
                span.member_id, span.deadline_ms = member_id, deadline_ms
            self.window.join(first_offset, last_offset)
        if found:
            self._lock_end_ms = min(self._lock_end_ms, deadline_ms)

    def give_back(self, acquired: Iterable[AcquiredRange]) -> None:
        """Undo an acquisition whose records are not sent to the member, and restore their delivery
        count."""
        for first_offset, last_offset, _ in acquired:
            for span in self.window.cut(first_offset, last_offset):
                assert span.is_acquired
                span.state = DeliveryState.AVAILABLE
                span.count -= 1
                span.member_id, span.deadline_ms = NO_MEMBER, NO_DEADLINE_MS
            self.window.join(first_offset, last_offset)
            self._note_available(first_offset)
            if self.order is not None:
                self.order.put_back(first_offset, last_offset)

    def _acquire_in(
        self,
        batch: LogBatch,
        first: int,
        left: int,
        is_strict: bool,
        has_others: bool,
        found: list[AcquiredRange],
    ) -> tuple[int, bool]:
        """Add the acquirable records of one log batch, from `first` on, to `found`. Returns their
        number, and whether the acquisition ends with them.

        After half of its delivery attempts, a record is acquired without records of other batches.
        Each further attempt acquires half as many records of the batch, so that a record that
        breaks its consumers is isolated (KIP-932). In the last attempt, the record is acquired
        without any other record.
        """
        window, limit, count = self.window, self.rules.delivery_count_limit, 0
        last = batch.last_offset
        piece_left: int | None = None
        batch_records = last - batch.first_offset + 1
        for span in window.within(first, last):
            if not span.is_available:
                continue
            if span.count >= limit:  # The limit was lowered.
                self._use_up(span)
                continue
            begin, end = max(first, span.first), min(last, span.last)
            size = min(end - begin + 1, left - count)
            if size <= 0:
                return count, True
            piece = throttled_size(batch_records, span.count, limit)
            if piece is not None and piece_left is None:
                if has_others or count:
                    return count, True
                piece_left = piece
            if piece_left is not None:
                if count and limit > 2 and span.count == limit - 1:
                    return count, True
                size = min(size, piece_left)
                piece_left -= size
                add_range(found, begin, begin + size - 1, span.count + 1)
                count += size
                if not piece_left:
                    return count, True
                continue
            add_range(found, begin, begin + size - 1, span.count + 1)
            count += size
        if piece_left is not None:
            return count, True
        begin = max(first, window.end_offset)
        size = min(last - begin + 1, left - count)
        capacity = self.rules.record_locks_max - window.size
        if size > 0 and capacity > 0:
            if is_strict:
                size = min(size, capacity)
            window.append(Span(begin, begin + size - 1, DeliveryState.AVAILABLE, 0))
            add_range(found, begin, begin + size - 1, 1)
            count += size
        return count, window.end_offset <= last

    def _use_up(self, span: Span) -> None:
        """Archive available records that have reached the delivery count limit, or prepare their
        dead letters."""
        span.state = self._last_state
        if span.state == DeliveryState.ARCHIVING:
            self._add_letters(span, LetterStep.STORE_ARCHIVING, is_rejected=False)

    # ---- acquisition out of the order of the log

    def set_order(self, rules: OrderingRules | None, *, salt: int) -> None:
        """Deliver further records by `rules`, or in the order of the log if `rules` is None. The
        log is then read ahead again."""
        self.order = None
        self._available_from = self.window.start_offset
        if rules is not None:
            self.order = DeliveryOrder(rules, self.window.start_offset, salt=salt)

    def admit(
        self,
        order: DeliveryOrder,
        first: int,
        last: int,
        *,
        traits: Traits,
        due_ms: int,
        now: Instant,
    ) -> None:
        """Add the next records of the log, which were read ahead, to the order of deliveries."""
        window = self.window
        begin = max(first, window.start_offset)
        if last >= window.end_offset:
            window.append(Span(window.end_offset, last, DeliveryState.AVAILABLE, 0))
        for span in window.within(begin, last):
            if span.is_available:
                order.add(
                    max(span.first, begin),
                    min(span.last, last),
                    span.count,
                    traits=traits,
                    due_ms=due_ms,
                    now=now,
                )
            elif _is_taken(span):
                order.add_taken(max(span.first, begin), min(span.last, last), traits)
        order.scanned_offset = last + 1

    def pass_gap(self, order: DeliveryOrder, last: int) -> None:
        """Archive the offsets that follow the last added record, up to `last`, because they have no
        records to deliver."""
        first = order.scanned_offset
        self._archive(first, last)
        for span in self.window.within(first, last):
            if _is_taken(span):
                order.add_taken(max(span.first, first), min(span.last, last), PLAIN)
        order.scanned_offset = last + 1
        self.window.advance()

    @property
    def is_spread(self) -> bool:
        """True if the durable state has nearly as many batches as fit into one record."""
        spans = self.window.spans
        if len(spans) < STORED_SPANS_MAX:
            return False
        new = DeliveryState.AVAILABLE
        stored_count = sum(1 for span in spans if span.count or span.state != new)
        return stored_count >= STORED_SPANS_MAX

    def take_ready(self, order: DeliveryOrder, records_max: int) -> list[tuple[int, int]]:
        """Remove the next records that a member may acquire from the order. Returns them as offset
        ranges in ascending order.

        For each range, the caller must then call `own_ready`, `drop_ready` or
        `DeliveryOrder.put_back`. As in the order of the log, records with many deliveries are taken
        separately, in small ranges.
        """
        window, rules = self.window, self.rules
        room = rules.record_locks_max - order.taken_count - len(self.letters)
        end = window.start_offset + rules.record_locks_max if self.is_spread else NEVER_MS
        found: list[tuple[int, int]] = []
        is_ended = False
        for first, last in order.take(min(records_max, room), end):
            for span in window.within(first, last):
                begin, stop = max(first, span.first), min(last, span.last) + 1
                size = throttled_size(stop - begin, span.count, rules.delivery_count_limit)
                if is_ended or (size is not None and found):
                    order.put_back(begin, stop - 1)
                    continue
                if size is not None:
                    is_ended = True
                    if begin + size < stop:
                        order.put_back(begin + size, stop - 1)
                        stop = begin + size
                found.append((begin, stop - 1))
        return found

    def own_ready(
        self, order: DeliveryOrder, member_id: str, first: int, last: int, now_ms: int
    ) -> list[AcquiredRange]:
        """Acquire records for a member that were taken for delivery. Records that have reached the
        delivery count limit, because it was lowered meanwhile, are not acquired."""
        found: list[AcquiredRange] = []
        for span in self.window.cut(first, last):
            if span.count >= self.rules.delivery_count_limit:
                self._use_up(span)
                order.on_settled(span.first, span.last, now_ms)
            else:
                found.append(AcquiredRange(span.first, span.last, span.count + 1))
        self.own(member_id, found, now_ms + self.rules.lock_duration_ms)
        return found

    def drop_ready(self, order: DeliveryOrder, first: int, last: int, now_ms: int) -> None:
        """Archive records that were taken for delivery but are no longer in the log."""
        self._archive(first, last)
        order.on_settled(first, last, now_ms)
        self.window.advance()

    # ---- gaps

    def _archive(self, first: int, last: int) -> None:
        """Archive records that do not exist in the log or are never delivered, both available
        records and records beyond the window. The change is not written, because the next leader
        computes the same result."""
        for span in self.window.cut(first, last):
            if span.is_available:
                span.state = DeliveryState.ARCHIVED
            elif (
                span.state == DeliveryState.ARCHIVING
                and span.transition is None
                and last < self._log_start_offset
            ):
                self._archive_unsent(span)
        if last >= self.window.end_offset:
            begin = self.window.end_offset
            self.window.append(Span(begin, last, DeliveryState.ARCHIVED, 0), is_gap=True)
        self.window.join(first, last)

    # ---- acknowledgement

    def acknowledge(
        self, member_id: str, acks: Sequence[AckBatch], now_ms: int
    ) -> Transition | None:
        """End or renew a member's acquisition of records. Returns the transition to write, or None
        if nothing has to be written.

        Either all acknowledgements take effect, or none. Raises RefusedError: INVALID_RECORD_STATE
        if the member has not acquired a record, INVALID_REQUEST if a record is beyond the window.
        Records below the start offset are ignored.
        """
        window = self.window
        if any(ack.last_offset >= max(window.end_offset, window.start_offset) for ack in acks):
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, "The acknowledged records were never acquired."
            )
        # Ranges below the window may be of any size.
        known = (ack for ack in acks if ack.last_offset >= window.start_offset)
        runs = [run for ack in known for run in _runs(ack)]
        end = window.start_offset
        for first, last, kind in runs:
            if last < window.start_offset:
                continue
            if first < end and first >= window.start_offset:
                raise RefusedError(
                    ErrorCode.INVALID_RECORD_STATE, "The request acknowledges a record twice."
                )
            end = last + 1
            if kind == AckType.RENEW and not self.rules.is_renewable:
                raise RefusedError(
                    ErrorCode.INVALID_RECORD_STATE, "The group does not renew acquisition locks."
                )
            for span in window.within(max(first, window.start_offset), last):
                if not span.is_acquired or span.member_id != member_id:
                    raise RefusedError(
                        ErrorCode.INVALID_RECORD_STATE,
                        "The acknowledged records are not acquired by the member.",
                    )
        transition = Transition()
        for first, last, kind in runs:
            self._apply(transition, first, last, kind, now_ms)
        if not transition.batches:
            return None
        self._due.append(transition)
        return transition

    def _apply(self, transition: Transition, first: int, last: int, kind: int, now_ms: int) -> None:
        deadline_ms = now_ms + self.rules.lock_duration_ms
        for span in self.window.cut(first, last):
            if kind == AckType.RENEW:
                span.deadline_ms = deadline_ms
                continue
            span.state = self._acknowledged_state(span, kind)
            span.transition = transition
            transition.batches.append(StateBatch(span.first, span.last, span.state, span.count))
            if kind == AckType.REJECT:
                transition.is_rejected.add(span.first)
        self.window.join(first, last)

    def _acknowledged_state(self, span: Span, kind: int) -> DeliveryState:
        if kind == AckType.ACCEPT:
            return DeliveryState.ACKNOWLEDGED
        if kind == AckType.RELEASE:
            return self._released_state(span)
        if kind == AckType.REJECT and span.first >= self._log_start_offset:
            return self._last_state
        return DeliveryState.ARCHIVED  # without a record

    def _released_state(self, span: Span) -> DeliveryState:
        if span.first < self._log_start_offset:
            return DeliveryState.ARCHIVED
        if span.count >= self.rules.delivery_count_limit:
            return self._last_state
        return DeliveryState.AVAILABLE

    @property
    def _last_state(self) -> DeliveryState:
        """State of a record that a consumer rejected, or whose last allowed delivery failed."""
        if self.rules.has_dead_letters:
            return DeliveryState.ARCHIVING
        return DeliveryState.ARCHIVED

    # ---- dead letters

    def begin_letter_steps(self, now_ms: int) -> list[DeadLetter]:
        """Begin the steps of dead letters that are due. Returns the letters to send now; the caller
        must call `on_letter` for each. Steps that store a state become part of the next write."""
        sent: list[DeadLetter] = []
        stored = Transition(is_of_letters=True)
        for letter in self.letters.due(now_ms):
            if letter.step is LetterStep.SEND and not self.rules.has_dead_letters:
                letter.advance(LetterStep.STORE_ARCHIVED)
            letter.is_under_way = True
            if letter.step is LetterStep.SEND:
                sent.append(letter)
            else:
                self._store_letter(letter, stored)
        self._add_due(stored)
        return sent

    def on_letter(self, letter: DeadLetter, *, is_written: bool, now_ms: int) -> None:
        """Apply the result of sending a dead letter. An unwritten letter is sent again later.

        If the log no longer has the record, the letter counts as written. The call has no effect if
        the letter was removed meanwhile, because its record is below the log start offset.
        """
        if self.letters.get(letter.offset) is not letter:
            return
        if is_written:
            letter.advance(LetterStep.STORE_ARCHIVED)
        else:
            letter.back_off(now_ms)

    def _store_letter(self, letter: DeadLetter, stored: Transition) -> None:
        """Add a state change to the next write: the state of the record that a dead letter
        copies."""
        is_last = letter.step is LetterStep.STORE_ARCHIVED
        offset = letter.offset
        for span in self.window.cut(offset, offset):
            assert span.state == DeliveryState.ARCHIVING
            span.state = DeliveryState.ARCHIVED if is_last else DeliveryState.ARCHIVING
            span.transition = stored
            stored.batches.append(StateBatch(offset, offset, span.state, span.count))
        self.window.join(offset, offset)

    def _add_due(self, transition: Transition) -> None:
        if transition.batches:
            self._due.append(transition)

    def _end_letter_step(self, span: Span, code: ErrorCode, now_ms: int) -> None:
        if code is not ErrorCode.NONE:
            span.state = DeliveryState.ARCHIVING
            for letter in self.letters.within(span.first, span.last):
                letter.back_off(now_ms)
        elif span.state == DeliveryState.ARCHIVED:
            self.letters.remove(span.first, span.last)
        else:
            for letter in self.letters.within(span.first, span.last):
                letter.advance(LetterStep.SEND)
        if span.state == DeliveryState.ARCHIVING and span.first < self._log_start_offset:
            self._archive_unsent(span)

    def _add_letters(self, span: Span, step: LetterStep, *, is_rejected: bool) -> None:
        self.letters.add(span.first, span.last, span.count, step, is_rejected=is_rejected)

    def _archive_unsent(self, span: Span) -> None:
        """Archive records that the log no longer has, without dead letters. As in `_archive`, the
        change is not written to the persister."""
        span.state = DeliveryState.ARCHIVED
        self.letters.remove(span.first, span.last)

    # ---- ends of acquisitions

    @property
    def next_lock_end_ms(self) -> int | None:
        """Lower bound in milliseconds of the time at which the next acquisition lock expires, or
        None if no record is locked."""
        return None if self._lock_end_ms == NEVER_MS else self._lock_end_ms

    def end_locks(self, now_ms: int) -> bool:
        """Release the records whose acquisition lock has expired. Returns whether a record was
        released."""
        if now_ms < self._lock_end_ms:
            return False
        self._lock_end_ms = NEVER_MS
        ended: list[Span] = []
        for span in self.window.spans:
            if span.deadline_ms == NO_DEADLINE_MS:
                continue
            if span.deadline_ms > now_ms:
                self._lock_end_ms = min(self._lock_end_ms, span.deadline_ms)
            elif span.is_acquired:
                ended.append(span)
                self.lock_end_count += span.size
        self._release(ended, now_ms)
        return bool(ended)

    def release_member(self, member_id: str, now_ms: int) -> bool:
        """Release the records that a member has acquired. Returns whether a record was released.

        Acknowledgements by the member that are not durable yet are still written. If their write
        fails, the records are released.
        """
        ended: list[Span] = []
        for span in self.window.spans:
            if span.member_id == member_id:
                if span.is_acquired:
                    ended.append(span)
                else:
                    span.deadline_ms = 0
        self._release(ended, now_ms)
        return bool(ended)

    def _release(self, ended: list[Span], now_ms: int) -> None:
        for span in ended:
            span.state = self._released_state(span)
            span.member_id, span.deadline_ms = NO_MEMBER, NO_DEADLINE_MS
            if self.order is not None:
                self._note_end(self.order, span, now_ms)
            if span.state == DeliveryState.ARCHIVING:
                # Not a released change: its letter waits until the state is durable.
                self._add_letters(span, LetterStep.STORE_ARCHIVING, is_rejected=False)
                continue
            self._released.append(StateBatch(span.first, span.last, span.state, span.count))
            if span.state == DeliveryState.AVAILABLE:
                self._note_available(span.first)
        if ended:
            self.window.join(ended[0].first, ended[-1].last)
            self.window.advance()

    def _note_available(self, offset: int) -> None:
        self._available_from = min(self._available_from, offset)

    # ---- the log

    def on_log_start(self, log_start_offset: int) -> bool:
        """Archive available records below the log start offset. Returns whether the start offset
        moved. Acquired records are archived when their acquisition ends."""
        if log_start_offset <= self._log_start_offset:
            return False
        self._log_start_offset = self.window.boundary = log_start_offset
        return self._advance_to_log_start()

    def _advance_to_log_start(self) -> bool:
        log_start_offset, window = self._log_start_offset, self.window
        if window.start_offset >= log_start_offset:
            return False
        self._archive(window.start_offset, log_start_offset - 1)
        window.split(log_start_offset)
        return window.advance()

    # ---- figures

    def count_in(self, state: DeliveryState) -> int:
        """Return the number of records in the delivery window that are in the delivery state
        `state`."""
        return sum(span.size for span in self.window.spans if span.state == state)


def _is_taken(span: Span) -> bool:
    """Return whether `_note_end` will be called when the acquisition of these records ends."""
    transition = span.transition
    if isinstance(transition, Transition):
        return not transition.is_of_letters
    return span.state == DeliveryState.ACQUIRED


def _runs(ack: AckBatch) -> Iterable[tuple[int, int, int]]:
    """Yield the first offset, last offset and type of each run of records acknowledged with one
    type."""
    types = ack.types
    if len(types) == 1:
        yield ack.first_offset, ack.last_offset, types[0]
        return
    begin = 0
    for at in range(1, len(types) + 1):
        if at == len(types) or types[at] != types[begin]:
            yield ack.first_offset + begin, ack.first_offset + at - 1, types[begin]
            begin = at
