"""Share partition with delays, back-off, keys and priorities against one entry for each offset."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.broker.coordinators.effects import Instant
from ottla.broker.share_state.share_partition_state import SharePartitionState
from ottla.broker.shares.delivery_window import TERMINAL, DeliveryState
from ottla.broker.shares.ordering.ordering_rules import OrderingRules
from ottla.broker.shares.ordering.record_traits import PLAIN, Priority, Traits
from ottla.broker.shares.share_partition import (
    AckBatch,
    AckType,
    SharePartition,
    ShareRules,
    ShareStateWrite,
    Transition,
)
from ottla.model.errors import ErrorCode
from tests.search_length import length

LIMIT, LOCKS_MAX, LOCK_MS = 5, 6, 100
BACKOFF_MS = 40
RECORDS_MAX = 40
MEMBERS = st.sampled_from(["a", "b"])
TYPES = st.sampled_from([AckType.ACCEPT, AckType.RELEASE, AckType.REJECT, AckType.GAP])


@dataclass
class Record:
    """One record of the model."""

    due_ms: int
    traits: Traits
    state: str = "free"
    """free, acquired, pending or settled."""
    owner: str = ""
    deadline_ms: int = 0
    count: int = 0
    released_ms: int = -1
    """Time of the last release whose outcome the model knows, or -1."""
    kind: int = -1
    transition: Transition | None = field(default=None, repr=False)

    @property
    def is_in_flight(self) -> bool:
        return self.state in ("acquired", "pending")


class Orders(RuleBasedStateMachine):
    """Events of one share partition whose log has one record at each offset."""

    @initialize(
        concurrency=st.integers(0, 2),
        has_priority=st.booleans(),
        backoff_ms=st.sampled_from([0, BACKOFF_MS]),
        look_ahead=st.sampled_from([4, 100]),
    )
    def begin(self, concurrency: int, has_priority: bool, backoff_ms: int, look_ahead: int) -> None:
        self.rules_of_order = OrderingRules(
            delay_ms=0,
            backoff_ms_min=backoff_ms,
            backoff_ms_max=4 * backoff_ms,
            key_concurrency=concurrency,
            has_priority=has_priority,
            look_ahead_records=look_ahead,
        )
        self.records: list[Record] = []
        self.log_start = self.mono_ms = 0
        self.stored = SharePartitionState()
        self.stored.apply_snapshot(
            self.stored.initial_snapshot(state_epoch=1, start_offset=0, now_ms=0, is_new=True)
        )
        self.share = SharePartition(0, ShareRules(LOCK_MS, LIMIT, LOCKS_MAX))
        self.share.set_order(self.rules_of_order, salt=5)
        self.write: ShareStateWrite | None = None

    @property
    def now(self) -> Instant:
        return Instant(mono_ms=self.mono_ms, wall_ms=self.mono_ms + 5_000_000)

    @rule(
        delay_ms=st.sampled_from([0, 0, 30, 90]),
        key=st.sampled_from([None, 1, 2]),
        priority=st.sampled_from(list(Priority)),
    )
    def append(self, delay_ms: int, key: int | None, priority: Priority) -> None:
        if len(self.records) >= RECORDS_MAX:
            return
        key = key if self.rules_of_order.key_concurrency else None
        priority = priority if self.rules_of_order.has_priority else Priority.NORMAL
        is_plain = key is None and priority is Priority.NORMAL
        due_ms = self.now.wall_ms + delay_ms if delay_ms else 0
        self.records.append(Record(due_ms, PLAIN if is_plain else Traits(priority, key)))

    @rule(count=st.integers(1, 10))
    def read_ahead(self, count: int) -> None:
        order = self.share.order
        assert order is not None
        if order.scanned_offset < self.log_start:
            self.share.pass_gap(order, self.log_start - 1)
        for _ in range(count):
            offset = order.scanned_offset
            if offset >= len(self.records) or order.is_full:
                return
            record = self.records[offset]
            self.share.admit(
                order, offset, offset, traits=record.traits, due_ms=record.due_ms, now=self.now
            )

    @rule(member=MEMBERS, records_max=st.integers(1, 5), sent=st.integers(0, 9))
    def poll(self, member: str, records_max: int, sent: int) -> None:
        """Acquire; one poll of ten is undone, and one ends after its first range."""
        order = self.share.order
        assert order is not None
        order.ripen(self.now)
        for at, (first, last) in enumerate(self.share.take_ready(order, records_max)):
            if sent == 9 and at:
                order.put_back(first, last)
                continue
            found = self.share.own_ready(order, member, first, last, self.mono_ms)
            if sent == 8:
                self.share.give_back(found)
                continue
            for begin, end, count in found:
                for offset in range(begin, end + 1):
                    self._deliver(member, offset, count)

    def _deliver(self, member: str, offset: int, count: int) -> None:
        record, rules = self.records[offset], self.rules_of_order
        assert record.state == "free", "OneOwner, SettledStaysSettled"
        assert self.log_start <= offset
        assert record.count + 1 == count <= LIMIT, "DeliveredWithinTheLimit"
        assert record.due_ms <= self.now.wall_ms, "NotBeforeItsTime: delay"
        if record.released_ms >= 0:
            assert record.released_ms + rules.backoff_ms_min <= self.mono_ms, "back-off"
        if record.traits.key is not None:
            self._check_key(offset, record)
        record.state, record.owner, record.count = "acquired", member, count
        record.deadline_ms = self.mono_ms + LOCK_MS
        in_flight = sum(each.is_in_flight for each in self.records)
        assert in_flight <= LOCKS_MAX, "delayed records take no place"

    def _check_key(self, offset: int, record: Record) -> None:
        key = record.traits.key
        others = [each for each in self.records if each.traits.key == key and each.is_in_flight]
        concurrency = self.rules_of_order.key_concurrency
        assert len(others) < concurrency, "OneInFlightPerKey"
        if concurrency > 1 or record.due_ms:
            return
        for earlier in self.records[self.log_start : offset]:
            if earlier.traits.key == key and not earlier.due_ms:
                assert earlier.state == "settled", "records of a key are delivered in order"

    @rule(member=MEMBERS, data=st.data(), kind=TYPES)
    def acknowledge(self, member: str, data: st.DataObject, kind: int) -> None:
        offsets = [
            offset
            for offset, each in enumerate(self.records)
            if each.state == "acquired" and each.owner == member
        ]
        if not offsets:
            return
        offset = data.draw(st.sampled_from(offsets))
        ack = AckBatch(offset, offset, [kind])
        transition = self.share.acknowledge(member, [ack], self.mono_ms)
        record = self.records[offset]
        record.state, record.kind, record.transition = "pending", kind, transition

    @rule()
    def send_write(self) -> None:
        if self.write is None:
            self.write = self.share.next_write()

    @rule(is_written=st.booleans())
    def answer_write(self, is_written: bool) -> None:
        if self.write is None:
            return
        write, self.write = self.write, None
        if is_written:
            self._store(write)
        code = ErrorCode.NONE if is_written else ErrorCode.COORDINATOR_NOT_AVAILABLE
        ended = self.share.on_written(code, self.mono_ms)
        for offset, record in enumerate(self.records):
            if record.state == "pending" and record.transition in ended:
                self._end(record, offset, is_written)

    def _store(self, write: ShareStateWrite) -> None:
        self.stored.apply_update(
            self.stored.update_of_write(
                start_offset=write.start_offset,
                delivery_complete_count=write.delivery_complete_count,
                batches=write.batches,
            )
        )

    def _end(self, record: Record, offset: int, is_written: bool) -> None:
        record.transition = None
        if is_written and record.kind != AckType.RELEASE:
            record.state = "settled"
        elif is_written or record.deadline_ms <= self.mono_ms:
            self._release(record, offset)
        else:
            record.state = "acquired"

    def _release(self, record: Record, offset: int) -> None:
        is_over = record.count >= LIMIT or offset < self.log_start
        record.state = "settled" if is_over else "free"
        record.released_ms = self.mono_ms

    @rule(elapsed_ms=st.sampled_from([1, 20, 50, 120]))
    def elapse(self, elapsed_ms: int) -> None:
        self.mono_ms += elapsed_ms
        self.share.end_locks(self.mono_ms)
        for offset, record in enumerate(self.records):
            if record.state == "acquired" and record.deadline_ms <= self.mono_ms:
                self._release(record, offset)

    @rule(member=MEMBERS)
    def close_session(self, member: str) -> None:
        self.share.release_member(member, self.mono_ms)
        for offset, record in enumerate(self.records):
            if record.owner == member and record.is_in_flight:
                record.deadline_ms = 0
                if record.state == "acquired":
                    self._release(record, offset)

    @rule(count=st.integers(1, 3))
    def move_log_start(self, count: int) -> None:
        order = self.share.order
        assert order is not None
        if self.log_start + count + 10 > len(self.records):
            return
        self.log_start += count
        self.share.on_log_start(self.log_start)
        order.drop_before(self.log_start, self.mono_ms)
        for record in self.records[: self.log_start]:
            if record.state == "free":
                record.state = "settled"

    @rule()
    def change_settings(self) -> None:
        """Let the settings change, so that the log is read ahead again."""
        self.share.set_order(self.rules_of_order, salt=5)
        order = self.share.order
        assert order is not None
        order.drop_before(self.log_start, self.mono_ms)

    @rule()
    def fail_over(self) -> None:
        """Load the durable state at another leader. Acquisitions end."""
        self.write = None
        self.share = SharePartition.load(
            self.stored.as_read(), ShareRules(LOCK_MS, LIMIT, LOCKS_MAX)
        )
        self.share.set_order(self.rules_of_order, salt=5)
        self.share.on_log_start(self.log_start)
        order = self.share.order
        assert order is not None
        order.drop_before(self.log_start, self.mono_ms)
        stored = {
            offset: (batch.delivery_state, batch.delivery_count)
            for batch in self.stored.batches
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        for offset, record in enumerate(self.records):
            state, record.count = stored.get(offset, (DeliveryState.AVAILABLE, 0))
            is_settled = state in TERMINAL or offset < max(self.stored.start_offset, self.log_start)
            record.state = "settled" if is_settled else "free"
            if not record.count:
                record.released_ms = -1

    @invariant()
    def every_record_has_one_place(self) -> None:
        order = self.share.order
        assert order is not None
        known = range(self.share.window.start_offset, order.scanned_offset)
        states = [
            span
            for offset in known
            for span in self.share.window.within(offset, offset)
            if not span.is_settled
        ]
        assert order.unsettled_count == len(states)
        taken = [span for span in states if not span.is_available]
        assert order.taken_count == len(taken)

    def teardown(self) -> None:
        """End all faults: every record is delivered, in a bounded number of polls."""
        if not hasattr(self, "records"):
            return
        for _ in range(20 * LIMIT + 2 * len(self.records)):
            self.elapse(LOCK_MS + 8 * BACKOFF_MS)
            self.send_write()
            self.answer_write(True)
            self.read_ahead(100)
            self.poll("a", 100, 0)
            for offset, record in enumerate(self.records):
                if record.state == "acquired":
                    ack = AckBatch(offset, offset, [AckType.ACCEPT])
                    record.transition = self.share.acknowledge("a", [ack], self.mono_ms)
                    record.state, record.kind = "pending", AckType.ACCEPT
            if all(each.state == "settled" for each in self.records):
                break
        else:
            raise AssertionError("NothingIsLost: a record was not delivered")
        order = self.share.order
        assert order is not None
        self.send_write()
        self.answer_write(True)
        assert not order.unsettled_count
        assert not order._keys
        assert not order._traits


TestOrders = Orders.TestCase
TestOrders.settings = settings(max_examples=length(50, 150), stateful_step_count=60, deadline=None)
