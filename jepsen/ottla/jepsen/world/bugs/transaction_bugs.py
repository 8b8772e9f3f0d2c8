"""Mutants (deliberate bugs that the simulation must find) in transactions: coordinators, markers,
readers, offsets. Simulations of whole clusters find them."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from ottla.broker.coordinators.effects import Instant
from ottla.broker.groups.offsets.pending_offsets import PendingOffsets
from ottla.broker.transactions import transaction_rules, transaction_shard
from ottla.broker.transactions.transaction import (
    EPOCH_BUMPS_FROM,
    PREPARED,
    Transaction,
    TransactionFacts,
)
from ottla.broker.transactions.transaction_rules import NamedProducer
from ottla.broker.transactions.transaction_shard import TransactionShard
from ottla.jepsen.world.bugs.mutant import Mutant, Plant, patched
from ottla.storage.log.log_state import LogState
from ottla.storage.segments.segment import Segment


def _same_epoch_for_all() -> Any:
    def next_epoch(facts: TransactionFacts, expected: NamedProducer | None) -> tuple[int, int]:
        return max(0, facts.producer_epoch), -1

    return patched(transaction_rules, _next_epoch=next_epoch)


def _any_epoch_may_end() -> Any:
    original = transaction_rules.decide_end

    def decide(transaction: Transaction | None, producer: NamedProducer, **named: Any) -> Any:
        if transaction is not None:
            facts = transaction.facts
            producer = NamedProducer(facts.producer_id, facts.producer_epoch)
        return original(transaction, producer, **named)

    return patched(transaction_shard, decide_end=decide)


def _fenced_end_is_a_retry() -> Any:
    original = transaction_rules._bumping_rule

    def rule(transaction: Transaction, producer: NamedProducer, is_commit: bool) -> Any:
        facts = replace(transaction.facts, client_version=EPOCH_BUMPS_FROM)
        seen: Any = SimpleNamespace(pending=transaction.pending, facts=facts)
        return original(seen, producer, is_commit)

    return patched(transaction_rules, _bumping_rule=rule)


def _same_id_after_overflow() -> Any:
    def after_end(self: TransactionFacts) -> Any:
        return self.producer_id, 0 if self.next_producer_id >= 0 else self.producer_epoch

    return patched(TransactionFacts, identity_after_end=property(after_end))


def _no_bump_at_the_end() -> Any:
    original = Transaction.prepare_end

    def prepare(self: Transaction, **named: Any) -> TransactionFacts:
        epoch = self.facts.producer_epoch
        return replace(original(self, **named), producer_epoch=epoch)

    return patched(Transaction, prepare_end=prepare)


def _aborts_written_as_commits() -> Any:
    original = TransactionShard._send_markers

    def send(self: TransactionShard, transaction: Transaction, now: Any) -> None:
        original(self, transaction, now)
        for order in self._effects.orders:
            order.is_commit = True

    return patched(TransactionShard, _send_markers=send)


def _marked_before_prepared() -> Any:
    original = TransactionShard._write

    def write(
        self: TransactionShard,
        transaction: Transaction,
        facts: TransactionFacts,
        responder: Any,
        answer: Any,
    ) -> None:
        original(self, transaction, facts, responder, answer)
        if facts.status in PREPARED:
            prepare = self._effects.writes[-1]
            prepare.on_committed(Instant(0, facts.last_update_ms))
            prepare.on_committed = lambda now: None
            prepare.on_refused = lambda: None

    return patched(TransactionShard, _write=write)


def _stable_at_the_high_watermark() -> Any:
    return patched(LogState, last_stable_offset=property(lambda self: self.high_watermark))


def _aborts_unlisted() -> Any:
    return patched(Segment, note_aborted=lambda self, aborted: None)


def _offsets_of_aborted_count() -> Any:
    original = PendingOffsets.end

    def end(self: PendingOffsets, producer_id: int, *, is_commit: bool) -> Any:
        return original(self, producer_id, is_commit=True)

    return patched(PendingOffsets, end=end)


def _offsets_dropped_by_commits() -> Any:
    original = PendingOffsets.end

    def end(self: PendingOffsets, producer_id: int, *, is_commit: bool) -> Any:
        return original(self, producer_id, is_commit=False)

    return patched(PendingOffsets, end=end)


def _mutant(
    name: str,
    sentence: str,
    plant: Plant,
    *,
    found_at: int = 0,
    budget: int = 3_000,
    subject: str = "transactions",
) -> Mutant:
    """Return a mutant (deliberate bug) of transactions. `found_at` is the seed whose run finds the
    mutant. If that run is cheap, the mutant is part of every test run. `budget` is the number of
    events of a run."""
    return Mutant(
        name=f"txn-{name}",
        sentence=sentence,
        engine="whole",
        subject=subject,
        plant=plant,
        seed_count=60,
        first_seed=found_at,
        budget=budget,
        is_quick=found_at > 0,
    )


MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "epoch-of-all",
        "a producer that initialises a transactional id gets the epoch of the previous one",
        _same_epoch_for_all,
        found_at=8,
    ),
    _mutant(
        "zombie-ends",
        "EndTxn is accepted from a fenced producer",
        _any_epoch_may_end,
        found_at=8,
    ),
    _mutant(
        "fenced-end-is-a-retry",
        "an abort of a new client that an old one fenced counts as a retry of the old one's",
        _fenced_end_is_a_retry,
        found_at=202,
        budget=20_000,
        subject="transactions-clients",
    ),
    _mutant(
        "overflow-keeps-id",
        "epochs restart at 0 under the same producer id",
        _same_id_after_overflow,
        found_at=23,
        budget=5_000,
    ),
    _mutant(
        "no-bump-at-end",
        "the end of a transaction does not raise the epoch",
        _no_bump_at_the_end,
    ),
    _mutant(
        "aborts-commit",
        "an aborted transaction gets a commit marker",
        _aborts_written_as_commits,
        found_at=8,
    ),
    _mutant(
        "marked-early",
        "markers are written before the Prepare record of their transaction is committed",
        _marked_before_prepared,
        found_at=1,
        budget=8_000,
        subject="transactions-coordinators",
    ),
    _mutant(
        "stable-early",
        "read_committed consumers see records of open transactions",
        _stable_at_the_high_watermark,
        found_at=8,
    ),
    _mutant(
        "aborts-unlisted",
        "a fetch response does not list the aborted transactions of its records",
        _aborts_unlisted,
        found_at=8,
    ),
    _mutant(
        "offsets-without-it",
        "the offsets of an aborted transaction are committed",
        _offsets_of_aborted_count,
        found_at=15,
    ),
    _mutant(
        "offsets-dropped",
        "the offsets of a committed transaction are not committed",
        _offsets_dropped_by_commits,
    ),
)
