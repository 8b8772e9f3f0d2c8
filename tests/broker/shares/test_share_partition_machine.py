"""Share partition against a model with one entry for each offset, under every order of events."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.broker.coordinators.share_persister import StateBatch
from ottla.broker.share_state.share_partition_state import SharePartitionState
from ottla.broker.shares.dead_letters import DeadLetter
from ottla.broker.shares.delivery_window import DeliveryState
from ottla.broker.shares.share_partition import (
    AckBatch,
    AckType,
    LogBatch,
    SharePartition,
    ShareRules,
    ShareStateWrite,
    Transition,
)
from ottla.model.errors import ErrorCode, RefusedError
from tests.search_length import length

MEMBERS = st.sampled_from(["a", "b", "c"])
TYPES = st.sampled_from([AckType.GAP, AckType.ACCEPT, AckType.RELEASE, AckType.REJECT])
LIMIT, WINDOW_MAX, LOCK_MS = 4, 12, 100


@dataclass
class Record:
    """One offset of the model."""

    state: str = "new"
    """new, available, acquired, pending, archiving or settled."""
    count: int = 0
    owner: str = ""
    deadline_ms: int = 0
    outcome: str = ""
    """State after the pending transition, if its write succeeds."""
    transition: Transition | None = None
    stored: bool = False
    """True if a settled state was stored by a write that succeeded."""
    stored_archiving: bool = False
    lettered: bool = False
    """True if the dead letter is written."""
    acknowledged: bool = False
    """True if the present leader knows that the dead letter is written."""
    in_write: bool = False
    """True if a step of the dead letter waits for a write."""


class Shares(RuleBasedStateMachine):
    """Events of one share partition; the log has batches of one to four offsets."""

    @initialize(
        sizes=st.lists(st.integers(1, 4), min_size=12, max_size=12),
        hidden=st.sets(st.integers(0, 11)),
        has_letters=st.booleans(),
    )
    def begin(self, sizes: list[int], hidden: set[int], has_letters: bool) -> None:
        self.now_ms = 0
        self.log: list[LogBatch] = []
        end = 0
        for at, size in enumerate(sizes):
            self.log.append(LogBatch(end, end + size - 1, at not in hidden))
            end += size
        self.end = end
        self.log_start = 0
        self.records = [Record() for _ in range(end)]
        self.rules_of_group = ShareRules(LOCK_MS, LIMIT, WINDOW_MAX, True, has_letters)
        self.was_switched = False
        self.letters: list[DeadLetter] = []
        """Letters on their way."""
        self.former_letters: list[DeadLetter] = []
        """Letters of former leaders on their way."""
        self.stored = SharePartitionState()
        self.stored.apply_snapshot(
            self.stored.initial_snapshot(state_epoch=1, start_offset=0, now_ms=0, is_new=True)
        )
        self.share = SharePartition(0, self.rules_of_group)
        self.write: ShareStateWrite | None = None
        self.highest_start = 0

    def release(self, record: Record, offset: int) -> None:
        is_last = record.count >= LIMIT or offset < self.log_start
        record.state, record.owner = self.last_state(offset) if is_last else "available", ""

    def last_state(self, offset: int) -> str:
        has_letter = self.share.rules.has_dead_letters and offset >= self.log_start
        return "archiving" if has_letter else "settled"

    def hide(self, offset: int) -> None:
        record = self.records[offset]
        if record.state in ("new", "available"):
            record.state = "settled"
        if record.state == "archiving" and not record.in_write:
            record.state = "settled"

    @rule()
    def begin_letter_steps(self) -> None:
        if not self.share.rules.has_dead_letters and not self.was_switched:
            assert not self.share.letters
        sent = self.share.begin_letter_steps(self.now_ms)
        self.letters += sent
        for letter in sent:
            record = self.records[letter.offset]
            assert record.state == "archiving"
            assert record.stored_archiving, "a letter is sent once Archiving is durable"
            assert letter.count == record.count
            assert letter.due_ms <= self.now_ms, "a letter that failed waits"
            assert not record.acknowledged, "a letter that is written is not sent again"
        due = self.share.letters.next_due_ms
        assert due is None or due > self.now_ms, "each step that is due has begun"
        for span in self.share.window.spans:
            if isinstance(span.transition, Transition) and span.transition.is_of_letters:
                for offset in range(span.first, span.last + 1):
                    self.records[offset].in_write = True

    @precondition(lambda self: self.letters)
    @rule(data=st.data(), is_written=st.booleans())
    def answer_letter(self, data: st.DataObject, is_written: bool) -> None:
        letter = self.letters.pop(data.draw(st.integers(0, len(self.letters) - 1)))
        self.answer_one(letter, is_written)

    def answer_one(self, letter: DeadLetter, is_written: bool) -> None:
        is_known = self.share.letters.get(letter.offset) is letter
        self.share.on_letter(letter, is_written=is_written, now_ms=self.now_ms)
        if is_written and is_known:
            self.records[letter.offset].lettered = True
            self.records[letter.offset].acknowledged = True
        elif is_known:
            assert letter.due_ms > self.now_ms, "a letter that failed waits"

    @precondition(lambda self: self.former_letters)
    @rule(is_written=st.booleans())
    def answer_former_letter(self, is_written: bool) -> None:
        """Pass an outcome to a leader that has not sent the letter."""
        letter = self.former_letters.pop()
        before = [(one.offset, one.step, one.is_under_way) for one in self.all_letters()]
        self.share.on_letter(letter, is_written=is_written, now_ms=self.now_ms)
        after = [(one.offset, one.step, one.is_under_way) for one in self.all_letters()]
        assert after == before

    def all_letters(self) -> list[DeadLetter]:
        return list(self.share.letters.within(0, self.end))

    @precondition(lambda self: self.letters)
    @rule(is_written=st.booleans())
    def answer_all_letters(self, is_written: bool) -> None:
        """Pass one outcome to all letters on their way, as a request with a batch of them does."""
        while self.letters:
            self.answer_one(self.letters.pop(), is_written)

    @precondition(lambda self: any(r.state == "acquired" for r in self.records))
    @rule(data=st.data())
    def reject_for_good(self, data: st.DataObject) -> None:
        """Reject a run of records, store that, and send their letters."""
        offsets = [at for at, record in enumerate(self.records) if record.state == "acquired"]
        first = data.draw(st.sampled_from(offsets))
        owner, length = self.records[first].owner, 1
        while length < 4 and first + length in offsets:
            if self.records[first + length].owner != owner:
                break
            length += 1
        self.acknowledge_range(owner, first, length, AckType.REJECT)
        self.store_all()
        self.begin_letter_steps()

    def store_all(self) -> None:
        """Have all writes succeed that are due or in flight."""
        self.send()
        while self.write is not None:
            self.answer_as(ErrorCode.NONE)
            self.send()

    @precondition(lambda self: self.share.rules.has_dead_letters)
    @rule(is_rare=st.integers(0, 9))
    def switch_off_letters(self, is_rare: int) -> None:
        if not is_rare:
            self.was_switched = True
            self.rules_of_group = self.rules_of_group._replace(has_dead_letters=False)
            self.share.rules = self.rules_of_group

    @rule(
        member=MEMBERS,
        bytes_max=st.integers(1, 4),
        records_max=st.integers(1, 6),
        strict=st.booleans(),
        size=st.integers(0, 6),
    )
    def acquire(
        self, member: str, bytes_max: int, records_max: int, strict: bool, size: int
    ) -> None:
        at = self.share.fetch_offset()
        if at is None:
            assert not any(r.state == "available" for r in self.records)
            return
        batches = [b for b in self.log if b.last_offset >= max(at, self.log_start)][:bytes_max]
        found = self.share.acquire(
            member,
            batches,
            fetch_offset=at,
            records_max=records_max,
            is_strict=strict,
            batch_size=size,
            now_ms=self.now_ms,
        )
        total = 0
        for first, last, count in found:
            for offset in range(first, last + 1):
                record = self.records[offset]
                assert record.state in ("new", "available"), "OneOwner, SettledStaysSettled"
                assert self.log_start <= offset or record.state == "available"
                assert any(
                    b.first_offset <= offset <= b.last_offset and b.is_delivered for b in batches
                )
                assert record.count + 1 == count <= LIMIT, "DeliveredWithinTheLimit"
                record.state, record.count, record.owner = "acquired", count, member
                record.deadline_ms = self.now_ms + LOCK_MS
                total += 1
        if strict:
            assert total <= records_max
        for offset, record in enumerate(self.records[: self.share.window.end_offset]):
            if record.state == "new" or (record.state == "available" and self._is_hidden(offset)):
                assert self._is_hidden(offset), "NothingSkipped"
                self._settle_as_seen(offset)

    def _is_hidden(self, offset: int) -> bool:
        return offset < self.log_start or any(
            b.first_offset <= offset <= b.last_offset and not b.is_delivered for b in self.log
        )

    def _settle_as_seen(self, offset: int) -> None:
        """Follow the share partition in archiving an offset that is never delivered."""
        window = self.share.window
        if offset < window.start_offset or any(
            span.state == DeliveryState.ARCHIVED for span in window.within(offset, offset)
        ):
            self.records[offset].state = "settled"

    @rule(member=MEMBERS, first=st.integers(0, 47), length=st.integers(1, 5), kind=TYPES)
    def acknowledge(self, member: str, first: int, length: int, kind: int) -> None:
        self.acknowledge_range(member, first, length, kind)

    def acknowledge_range(self, member: str, first: int, length: int, kind: int) -> None:
        last = first + length - 1
        known = [
            (offset, self.records[offset])
            for offset in range(max(first, self.share.window.start_offset), last + 1)
            if offset < self.end
        ]
        is_beyond = last >= self.share.window.end_offset and last >= self.share.window.start_offset
        is_allowed = all(r.state == "acquired" and r.owner == member for _, r in known)
        try:
            transition = self.share.acknowledge(
                member, [AckBatch(first, last, (kind,))], self.now_ms
            )
        except RefusedError as refusal:
            expected = ErrorCode.INVALID_REQUEST if is_beyond else ErrorCode.INVALID_RECORD_STATE
            assert refusal.code is expected
            assert is_beyond or not is_allowed
            return
        assert is_allowed and not is_beyond
        for offset, record in known:
            record.transition = transition
            record.state = "pending"
            is_last = record.count >= LIMIT or offset < self.log_start
            if kind == AckType.REJECT or (kind == AckType.RELEASE and is_last):
                record.outcome = self.last_state(offset)
            else:
                record.outcome = "available" if kind == AckType.RELEASE else "settled"

    @precondition(lambda self: any(r.state == "acquired" for r in self.records))
    @rule(data=st.data(), kind=TYPES)
    def acknowledge_own(self, data: st.DataObject, kind: int) -> None:
        """Acknowledge a record that is acquired, which a random range seldom contains."""
        offsets = [at for at, record in enumerate(self.records) if record.state == "acquired"]
        offset = data.draw(st.sampled_from(offsets))
        self.acknowledge_range(self.records[offset].owner, offset, 1, kind)

    @rule(member=MEMBERS)
    def close_session(self, member: str) -> None:
        self.share.release_member(member, self.now_ms)
        for offset, record in enumerate(self.records):
            if record.owner == member:
                record.deadline_ms = 0
                if record.state == "acquired":
                    self.release(record, offset)

    @rule(elapsed=st.integers(1, 150))
    def end_locks(self, elapsed: int) -> None:
        self.now_ms += elapsed
        due = self.share.next_lock_end_ms
        if due is None or due > self.now_ms:
            assert not any(
                r.state == "acquired" and r.deadline_ms <= self.now_ms for r in self.records
            )
        self.share.end_locks(self.now_ms)
        for offset, record in enumerate(self.records):
            if record.state == "acquired" and record.deadline_ms <= self.now_ms:
                self.release(record, offset)

    @rule()
    def send(self) -> None:
        write = self.share.next_write()
        if write is not None:
            assert self.write is None
            self.write = write

    @precondition(lambda self: self.write is not None)
    @rule(fails=st.sampled_from(["no", "before", "no"]))
    def answer(self, fails: str) -> None:
        self.answer_as(ErrorCode.COORDINATOR_NOT_AVAILABLE if fails == "before" else ErrorCode.NONE)

    def answer_as(self, code: ErrorCode) -> None:
        write, self.write = self.write, None
        assert write is not None
        ended = self.share.on_written(code, self.now_ms)
        if code is ErrorCode.NONE:
            self.stored.apply_update(
                self.stored.update_of_write(
                    start_offset=write.start_offset,
                    delivery_complete_count=write.delivery_complete_count,
                    batches=write.batches,
                )
            )
        for offset, record in enumerate(self.records):
            if record.state == "pending" and record.transition in ended:
                if code is ErrorCode.NONE:
                    record.state, record.owner = record.outcome, ""
                    record.stored = record.state == "settled"
                    record.stored_archiving = record.state == "archiving"
                    if offset < self.log_start:
                        record.state = "settled"
                elif record.deadline_ms > self.now_ms:
                    record.state = "acquired"
                else:
                    self.release(record, offset)
        for transition in ended:
            if transition.is_of_letters:
                for batch in transition.batches:
                    self._end_letter_step(batch, code)

    def _end_letter_step(self, batch: StateBatch, code: ErrorCode) -> None:
        for offset in range(batch.first_offset, batch.last_offset + 1):
            record = self.records[offset]
            assert record.state == "archiving"
            record.in_write = False
            if code is ErrorCode.NONE:
                if batch.delivery_state == DeliveryState.ARCHIVED:
                    assert record.lettered or self.was_switched, "ArchivedAfterItsLetter"
                    record.state, record.stored = "settled", True
                else:
                    record.stored_archiving = True
            if offset < self.log_start:
                record.state = "settled"

    @rule(by=st.integers(1, 4))
    def raise_log_start(self, by: int) -> None:
        self.log_start = min(self.end, self.log_start + by)
        self.share.on_log_start(self.log_start)
        for offset in range(self.log_start):
            self.hide(offset)

    @rule()
    def fail_over(self) -> None:
        """Load the stored state at the next leader. Writes of the old one are lost."""
        self.write = None
        self.former_letters += self.letters
        self.letters = []
        read = self.stored.as_read()
        self.share = SharePartition.load(read, self.rules_of_group)
        if self.log_start > read.start_offset:
            self.share.on_log_start(self.log_start)
        for offset, record in enumerate(self.records):
            record.owner, record.transition, record.in_write = "", None, False
            record.acknowledged = False
            if record.stored:
                record.state = "settled"
                continue
            span = next(iter(self.share.window.within(offset, offset)), None)
            if offset < self.share.window.start_offset:
                assert self._is_hidden(offset) or record.state == "settled", "NothingSkipped"
                record.state = "settled"
            elif span is None:
                record.state, record.count = "new", 0
            else:
                record.count = span.count
                record.state = "available" if span.is_available else "settled"
                if span.state == DeliveryState.ARCHIVING:
                    record.state = "archiving"
                if record.stored_archiving:
                    assert record.state != "available", "a dead letter is not delivered again"

    @invariant()
    def states_are_equal(self) -> None:
        if not hasattr(self, "share"):
            return
        window = self.share.window
        names = {
            DeliveryState.AVAILABLE: "available",
            DeliveryState.ACQUIRED: "acquired",
            DeliveryState.ACKNOWLEDGED: "settled",
            DeliveryState.ARCHIVING: "archiving",
            DeliveryState.ARCHIVED: "settled",
        }
        at = window.start_offset
        for span in window.spans:
            assert span.first == at <= span.last, "WholeWindow"
            at = span.last + 1
            for offset in range(span.first, min(span.last + 1, self.end)):
                record = self.records[offset]
                state = "pending" if span.transition is not None else names[span.state]
                if isinstance(span.transition, Transition) and span.transition.is_of_letters:
                    state = "archiving"
                assert (state, span.count) == (record.state, record.count), (offset, record)
        assert at == window.end_offset
        for offset in range(min(window.start_offset, self.end)):
            assert self.records[offset].state == "settled", "NothingSkipped"

    @invariant()
    def each_dying_record_has_one_letter(self) -> None:
        if not hasattr(self, "share"):
            return
        dying = set()
        for span in self.share.window.spans:
            transition = span.transition
            is_of_letters = isinstance(transition, Transition) and transition.is_of_letters
            is_dying = span.state == DeliveryState.ARCHIVING and transition is None
            if is_dying or is_of_letters:
                dying |= set(range(span.first, span.last + 1))
        letters = self.all_letters()
        assert len(letters) == len(self.share.letters)
        assert {letter.offset for letter in letters} == dying

    @invariant()
    def stored_records_are_archived_after_their_letter(self) -> None:
        if not hasattr(self, "share") or self.was_switched:
            return
        for offset, record in enumerate(self.records):
            if not record.stored_archiving or record.lettered or offset < self.log_start:
                continue
            assert offset >= self.stored.start_offset, "ArchivedAfterItsLetter"
            (state,) = (
                batch.delivery_state
                for batch in self.stored.batches
                if batch.first_offset <= offset <= batch.last_offset
            )
            assert state == DeliveryState.ARCHIVING, "ArchivedAfterItsLetter"

    def teardown(self) -> None:
        """End all letters: each record in state Archiving is archived then."""
        if not hasattr(self, "share"):
            return
        self.store_all()
        for _ in range(20):
            self.now_ms += 30_000
            self.begin_letter_steps()
            while self.letters:
                self.answer_one(self.letters.pop(), True)
            self.store_all()
        assert not self.share.letters
        self.each_dying_record_has_one_letter()
        assert not any(record.state == "archiving" for record in self.records)

    @invariant()
    def stored_start_passes_settled_records_only(self) -> None:
        if not hasattr(self, "share"):
            return
        for offset in range(min(self.stored.start_offset, self.end)):
            assert self.records[offset].state == "settled", "NothingSkipped"


TestShares = Shares.TestCase
TestShares.settings = settings(max_examples=length(40, 100), stateful_step_count=50, deadline=None)
