"""The transactions of one partition, against responses to clients and records in the log."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.broker.coordinators.effects import CoordinatorRecord, Instant, Responder
from ottla.broker.coordinators.performer import perform
from ottla.broker.transactions.markers import MarkerOrder
from ottla.broker.transactions.transaction import TransactionStatus
from ottla.broker.transactions.transaction_records import read_state_record
from ottla.broker.transactions.transaction_rules import NamedProducer
from ottla.broker.transactions.transaction_shard import StateWrite, TransactionShard
from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, ProducerId, TopicPartition
from ottla.model.settings.transactions import TransactionConfig

S = TransactionStatus
IDS = ("bank", "shop")
PARTITIONS = tuple(TopicPartition("t", index) for index in range(3))
TIMEOUT_MS = 60_000
CURRENT = 1
"""The number by which `some_producer` returns the one that has the id."""
FOLLOWS: dict[S, frozenset[S]] = {
    S.EMPTY: frozenset((S.EMPTY, S.ONGOING, S.PREPARE_ABORT)),
    S.ONGOING: frozenset((S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT)),
    S.PREPARE_COMMIT: frozenset((S.COMPLETE_COMMIT,)),
    S.PREPARE_ABORT: frozenset((S.COMPLETE_ABORT,)),
    S.COMPLETE_COMMIT: frozenset((S.EMPTY, S.ONGOING, S.PREPARE_ABORT)),
    S.COMPLETE_ABORT: frozenset((S.EMPTY, S.ONGOING, S.PREPARE_ABORT)),
}
"""States that may follow each state in the log: an outcome is final."""


class StateRecord(NamedTuple):
    """A record of a transactional id, decoded."""

    status: S
    producer: NamedProducer
    partitions: frozenset[TopicPartition]


class CoordinatorMachine(RuleBasedStateMachine):
    """Producers that begin, add, end and are fenced, while the log refuses and leaders change."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000
        self.next_id = 100
        self.epoch = 0
        self.log: list[CoordinatorRecord] = []
        self.written: dict[str, list[StateRecord]] = {one: [] for one in IDS}
        self.writes: list[StateWrite] = []
        self.orders: list[MarkerOrder] = []
        self.current: dict[str, NamedProducer] = {}
        """The producer whose id was confirmed last."""
        self.fenced: dict[str, set[NamedProducer]] = {one: set() for one in IDS}
        self.added: dict[str, set[TopicPartition]] = {one: set() for one in IDS}
        """Partitions of the open transaction whose addition was acknowledged."""
        self.shard = self.new_shard()

    def new_shard(self) -> TransactionShard:
        return TransactionShard(
            TransactionConfig(),
            index=0,
            coordinator_epoch=Epoch(self.epoch),
            take_id=self.take_id,
            server_version=lambda: 2,
        )

    def take_id(self) -> ProducerId:
        self.next_id += 1
        return ProducerId(self.next_id)

    @property
    def now(self) -> Instant:
        return Instant(self.now_ms, self.now_ms)

    names = st.sampled_from(IDS)
    number = st.integers(0, 1_000)
    are_committed = st.sampled_from((True,) * 6 + (None, False))
    """Fate of the record of a request: committed at once, later, or refused."""

    # ---- producers

    @rule(name=names, is_known=st.booleans(), is_committed=are_committed)
    def begins_a_life(self, name: str, is_known: bool, is_committed: bool | None) -> None:
        before = self.current.get(name) if is_known else None

        def answered(answer: Any) -> None:
            if isinstance(answer, NamedProducer):
                if name in self.current and self.current[name] != answer:
                    self.fenced[name].add(self.current[name])
                assert answer not in self.fenced[name], "an epoch is given out twice"
                self.current[name] = answer
                self.added[name].clear()

        self.shard.init_producer(
            name, before, timeout_ms=TIMEOUT_MS, responder=answered, now=self.now
        )
        self.settle(is_committed)

    @rule(
        name=names,
        wanted=st.sets(st.sampled_from(PARTITIONS), min_size=1),
        number=number,
        is_committed=are_committed,
    )
    def adds(
        self, name: str, wanted: set[TopicPartition], number: int, is_committed: bool | None
    ) -> None:
        producer, is_fenced = self.some_producer(name, number)

        def answered(code: Any) -> None:
            assert not (is_fenced and code is ErrorCode.NONE), "a fenced producer adds"
            if code is ErrorCode.NONE:
                self.added[name] |= wanted

        self.shard.add(name, producer, wanted, client_version=2, responder=answered, now=self.now)
        self.settle(is_committed)

    @rule(name=names, is_commit=st.booleans(), number=number, is_committed=are_committed)
    def ends(self, name: str, is_commit: bool, number: int, is_committed: bool | None) -> None:
        producer, is_fenced = self.some_producer(name, number)
        had = frozenset(self.added[name])

        def answered(answer: Any) -> None:
            if not isinstance(answer, NamedProducer):
                return
            assert not is_fenced, "a fenced producer ends a transaction"
            outcome = self.outcome_of(name, producer)
            assert outcome is not None and outcome.status is (
                S.PREPARE_COMMIT if is_commit else S.PREPARE_ABORT
            ), "the client gets another outcome than the log has"
            assert had <= outcome.partitions or not self.added[name]
            self.current[name] = answer
            self.added[name].clear()

        self.shard.end(
            name, producer, is_commit=is_commit, client_version=2, responder=answered, now=self.now
        )
        self.settle(is_committed)

    def some_producer(self, name: str, number: int) -> tuple[NamedProducer, bool]:
        """Return the producer of an id, or one that was fenced, and whether it is such."""
        fenced = sorted(self.fenced[name])
        if fenced and number % 4 == 0:
            return fenced[number % len(fenced)], True
        return self.current.get(name, NamedProducer(ProducerId(1), 0)), False

    def outcome_of(self, name: str, producer: NamedProducer) -> StateRecord | None:
        """Return the last decision that the log holds of a producer's transaction."""
        for one in reversed(self.written[name]):
            is_of_it = one.producer.epoch in (producer.epoch, producer.epoch + 1)
            if one.status in (S.PREPARE_COMMIT, S.PREPARE_ABORT) and is_of_it:
                return one
        return None

    @rule(
        name=names,
        wanted=st.lists(st.sets(st.sampled_from(PARTITIONS), min_size=1), min_size=1, max_size=3),
        is_commit=st.booleans(),
        is_ended=st.booleans(),
    )
    def runs_a_transaction(
        self, name: str, wanted: list[set[TopicPartition]], is_commit: bool, is_ended: bool
    ) -> None:
        """Have the producer of an id add partitions, and end that if it does not stop there."""
        self.comes_to_rest()
        if name not in self.current:
            self.begins_a_life(name, False, True)
        for each in wanted:
            self.adds(name, each, CURRENT, True)
        if is_ended:
            self.ends(name, is_commit, CURRENT, True)

    @rule(name=names, is_commit=st.booleans(), number=number)
    def is_fenced(self, name: str, is_commit: bool, number: int) -> None:
        """Give the id to a new producer, and let an earlier one try to continue."""
        for _ in range(2):  # the first may abort what is open
            self.comes_to_rest()
            self.begins_a_life(name, False, True)
        self.adds(name, set(PARTITIONS), CURRENT, True)
        self.ends(name, is_commit, number * 4, True)
        self.adds(name, set(PARTITIONS), number * 4, True)

    # ---- the log, the markers, time

    def settle(self, is_committed: bool | None) -> None:
        """Perform the decided effects, and have the log accept, refuse or delay the records."""
        self.perform()
        while self.writes and is_committed is not None:
            self.end_write(self.writes.pop(), is_committed=is_committed)
            self.perform()

    def perform(self) -> None:
        perform(self.shard.take_effects(), self)

    def answer(self, responder: Responder, answer: Any) -> None:
        responder(answer)

    def append(
        self, writes: Sequence[StateWrite], answers: Sequence[tuple[Responder, Any]]
    ) -> None:
        assert not answers
        self.writes += writes

    def send(self, order: MarkerOrder) -> None:
        self.check_order(order)
        self.orders.append(order)

    def wake(self, key: str) -> None:
        assert key in self.shard.transactions

    def wake_at(self, deadline_ms: int | None) -> None:
        assert deadline_ms is None

    def work_soon(self) -> None:
        raise AssertionError("transactions have no work in steps")

    def check_order(self, order: MarkerOrder) -> None:
        last = self.written[order.transactional_id][-1]
        assert last.status is (S.PREPARE_COMMIT if order.is_commit else S.PREPARE_ABORT)
        assert order.missing == last.partitions
        assert (order.producer_id, order.producer_epoch) == last.producer

    def end_write(self, write: StateWrite, *, is_committed: bool) -> None:
        if not is_committed:
            write.on_refused()
            return
        for record in write.records:
            self.log.append(record)
            self.note(record)
        write.on_committed(self.now)
        if write.responder is not None:
            write.responder(write.answer)

    def note(self, record: CoordinatorRecord) -> None:
        said = read_state_record(*record)
        assert said is not None
        name, facts = said
        assert facts is not None
        written = StateRecord(
            facts.status,
            NamedProducer(facts.producer_id, facts.producer_epoch),
            facts.partitions,
        )
        history = self.written[name]
        if history:
            before = history[-1]
            assert written.status in FOLLOWS[before.status], (before, written)
            if written.producer.producer_id == before.producer.producer_id:
                assert written.producer.epoch >= before.producer.epoch
            if written.status is S.ONGOING and before.status is S.ONGOING:
                assert written.partitions >= before.partitions
        if written.status in (S.PREPARE_COMMIT, S.PREPARE_ABORT):
            assert written.partitions >= self.added[name] or written.status is S.PREPARE_ABORT
        history.append(written)

    @precondition(lambda self: self.writes)
    @rule(number=number, is_committed=st.booleans())
    def commits_later(self, number: int, is_committed: bool) -> None:
        self.end_write(self.writes.pop(number % len(self.writes)), is_committed=is_committed)
        self.perform()

    @precondition(lambda self: self.orders)
    @rule(number=number, count=st.integers(1, 3), is_committed=are_committed)
    def marks(self, number: int, count: int, is_committed: bool | None) -> None:
        order = self.orders[number % len(self.orders)]
        self.shard.on_marked(order, sorted(order.missing)[:count], self.now)
        if not order.missing:
            self.orders.remove(order)
        self.settle(is_committed)

    @rule()
    def writes_completions_again(self) -> None:
        self.shard.complete_again(self.now)
        self.settle(True)

    @rule(elapsed_ms=st.sampled_from((1, TIMEOUT_MS // 2, 2 * TIMEOUT_MS)))
    def waits(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        for _ in self.shard.abort_timed_out(self.now):
            pass
        self.settle(True)

    @rule()
    def changes_the_leader(self) -> None:
        """Replace the coordinator by one that knows only the content of the log."""
        self.epoch += 1
        self.writes.clear()
        self.orders.clear()
        self.shard = self.new_shard()
        for record in self.log:
            self.shard.replay(*record)
        for _ in self.shard.resume(self.now):
            pass
        self.settle(True)

    @rule()
    def comes_to_rest(self) -> None:
        """Let everything under way end: no transaction is left prepared."""
        for _ in range(4):
            self.shard.complete_again(self.now)
            self.settle(True)
            for order in list(self.orders):
                self.shard.on_marked(order, list(order.missing), self.now)
                self.orders.remove(order)
                self.settle(True)
        assert not self.shard.uncompleted_count
        for name, transaction in self.shard.transactions.items():
            assert transaction.pending is None, name
            assert transaction.facts.status not in (S.PREPARE_COMMIT, S.PREPARE_ABORT)

    # ---- always

    @invariant()
    def the_log_says_what_the_coordinator_knows(self) -> None:
        for name, history in self.written.items():
            if not history:
                continue
            facts = self.shard.described(name)
            last = history[-1]
            assert facts.status is last.status
            assert (facts.producer_id, facts.producer_epoch) == last.producer
            assert facts.partitions <= last.partitions

    @invariant()
    def every_state_is_counted(self) -> None:
        for status in S:
            count = sum(one.facts.status is status for one in self.shard.transactions.values())
            assert self.shard.counts[status] == count


TestCoordinating = CoordinatorMachine.TestCase
TestCoordinating.settings = settings(
    max_examples=1_000 if os.environ.get("OTTLA_FAULTS") == "full" else 50,
    stateful_step_count=40,
    deadline=None,
)
