"""Checker of transactions: atomicity, isolation and fencing, beyond the guarantees of logs.

The module is pure: it does no I/O. Its running time is linear in the length of the history. The
checkers `log` and `cycles` judge the same history. They report aborted reads of transactions with a
known outcome (G1a), lost, duplicate and torn transactions, and cycles (G0, G1c). This checker
reports:

- G1a: a record was read of a transaction whose producer never requested its commit;
- G1b: a record was read before its commit was requested, or a reader skipped some of a
  transaction's records in one log;
- zombie-commit: a producer committed after another one had initialised its transactional id;
- bank-total: the amounts written by all transactions do not sum to zero, although the
  amounts of each single transaction do;
- lost-output, duplicate-output: an input record whose offset a transaction committed has no
  committed output, or more than one;
- early-output: an input record whose offset is not committed has an output.

Operations of the history:

- `txn`: its value is a list of ["send", key, value]; it has the extra `name` and `producer`;
- `ask-commit`: its value is the name of a transaction, recorded when its commit is requested;
- `init`: it has the extra `transactional_id` and `producer`;
- `committed`: its value is {"group", "keys": {key: next offset}}; at the end it has extra `final`.

The second last part of a record value, as in `name/+5/17`, is its amount. An output ends with `<`
and the value of its input.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ottla.jepsen.checkers.log_reading import LogReading, Poll, Send, Value, indexes
from ottla.jepsen.checkers.verdict import Findings, RunFacts, Verdict
from ottla.jepsen.history import EventKind, History, Json, Operation

OUTPUT_SIGN = "<"


def amount_of(value: Value) -> int:
    """Return the amount that a record value contains, or 0 if the value has no amount."""
    parts = str(value).split("/")
    return 0 if len(parts) < 3 or OUTPUT_SIGN in str(value) else int(parts[-2])


def input_of(value: Value) -> str | None:
    """Return the value of the input record from which a record was produced, or None if its value
    is not an output."""
    return str(value).partition(OUTPUT_SIGN)[2] or None


@dataclass(slots=True)
class ProducerLife:
    """Time in which one producer owns a transactional id: from its initialisation of the id until
    another producer takes over."""

    transactional_id: str
    begun: int
    ended: int
    """Index of the last event of the producer's initialisation. `begun` is the index of the first
    event."""
    succeeded: int | None = None
    """Index of the event after which another producer certainly owns this transactional id, or None
    if no event proves that."""


@dataclass(slots=True)
class TransactionReading:
    """Index of a history by transaction and producer."""

    transactions: dict[str, Operation] = field(default_factory=dict)
    """Operations that performed the transactions of the history, by the transaction's name."""
    asked: dict[str, int] = field(default_factory=dict)
    """Index of the event that requested the commit of each transaction, by the transaction's
    name."""
    lives: dict[str, ProducerLife] = field(default_factory=dict)
    """Transactional producers of the history, by name."""
    committed: dict[str, int] = field(default_factory=dict)
    """For each key (partition), the final committed offset of the group that reads it."""


def check_transactions(history: History, facts: RunFacts) -> Verdict:
    """Return the verdict on the transactions of a history."""
    findings = Findings("transactions")
    logs = LogReading.of(history, facts)
    reading = _read(history)
    for poll in logs.polls:
        if poll.is_ok:
            _check_asked_before(reading, logs, poll, findings)
            _check_nothing_passed_over(logs, poll, findings)
    _check_zombies(reading, logs, findings)
    if logs.has_final_reads:
        if not facts.record_key_count:
            _check_total(logs, findings)
        _check_outputs(reading, logs, findings)
    kinds = [each.kind for each in reading.transactions.values()]
    findings.figures["committed"] = kinds.count(EventKind.OK)
    findings.figures["aborted"] = kinds.count(EventKind.FAIL)
    findings.figures["of unknown end"] = kinds.count(EventKind.INFO)
    return findings.verdict(facts)


def _read(history: History) -> TransactionReading:
    reading = TransactionReading()
    for operation in history.operations("txn", "ask-commit", "init", "committed"):
        f, extra = operation.invoke.f, operation.extra
        if f == "txn" and "name" in extra:
            reading.transactions[extra["name"]] = operation
        elif f == "ask-commit":
            reading.asked[operation.invoke.value] = operation.invoke.index
        elif f == "init" and operation.kind is EventKind.OK and "producer" in extra:
            reading.lives[extra["producer"]] = ProducerLife(
                extra["transactional_id"], operation.invoke.index, operation.index
            )
        elif f == "committed" and operation.kind is EventKind.OK and extra.get("final"):
            reading.committed.update(_offsets(operation.value))
    _find_successors(reading.lives)
    return reading


def _offsets(value: Json) -> Iterator[tuple[str, int]]:
    for key, offset in value["keys"].items():
        yield key, 0 if offset is None else int(offset)


def _find_successors(lives: Mapping[str, ProducerLife]) -> None:
    """Set `succeeded` of each producer whose transactional id was initialised again later. Its
    value is the index of the event that first ended such an initialisation."""
    by_id: dict[str, list[ProducerLife]] = {}
    for life in lives.values():
        by_id.setdefault(life.transactional_id, []).append(life)
    for others in by_id.values():
        others.sort(key=lambda life: life.begun)
        # From the last begin backwards: the earliest end among all initialisations that began at or
        # after this one.
        first_end = [life.ended for life in others]
        for place in range(len(others) - 2, -1, -1):
            first_end[place] = min(first_end[place], first_end[place + 1])
        begun = [life.begun for life in others]
        for life in others:
            place = bisect_right(begun, life.ended)
            life.succeeded = first_end[place] if place < len(others) else None


def _check_asked_before(
    reading: TransactionReading, logs: LogReading, poll: Poll, findings: Findings
) -> None:
    for key, records in poll.records.items():
        sends = logs.keys[key].sends
        for offset, value in records:
            send = sends.get(value)
            name = None if send is None else send.operation.extra.get("name")
            if send is None or name is None or send.is_failed:
                continue  # `log` reports the operations that failed.
            asked = reading.asked.get(name)
            if asked is None:
                findings.add(
                    "G1a",
                    f"{key}: {value!r} was read at {offset}, and transaction {name} was never to "
                    "be committed",
                    indexes([send.operation, poll.operation]),
                    key,
                )
            elif poll.operation.index < asked:
                findings.add(
                    "G1b",
                    f"{key}: {value!r} was read at {offset} before transaction {name} was to be "
                    "committed",
                    (poll.operation.index, asked),
                    key,
                )


def _check_nothing_passed_over(logs: LogReading, poll: Poll, findings: Findings) -> None:
    for key, records in poll.records.items():
        if len(records) < 2:
            continue
        log = logs.keys[key]
        first, last = records[0][0], records[-1][0]
        seen = {value for _, value in records}
        looked_at: set[int] = set()
        for _, value in records:
            send = log.sends.get(value)
            if send is None or not send.is_transaction or send.is_failed:
                continue
            if send.operation.index in looked_at:
                continue
            looked_at.add(send.operation.index)
            for other in logs.sends_of[send.operation.invoke.index]:
                if other.key != key or other.value in seen or logs.is_superseded(log, other.value):
                    continue
                offset = _place_of(logs, other)
                if offset is not None and first < offset < last:
                    findings.add(
                        "G1b",
                        f"{key}: a poll from {first} to {last} has {value!r} of a transaction and "
                        f"not {other.value!r}, which lies at {offset}",
                        indexes([send.operation, poll.operation]),
                        key,
                    )


def _place_of(logs: LogReading, send: Send) -> int | None:
    return send.offset if send.offset is not None else logs.keys[send.key].offset_min(send)


def _check_zombies(reading: TransactionReading, logs: LogReading, findings: Findings) -> None:
    for name, operation in reading.transactions.items():
        life = reading.lives.get(operation.extra.get("producer", ""))
        asked = reading.asked.get(name)
        if life is None or life.succeeded is None or asked is None or asked < life.succeeded:
            continue
        sends = logs.sends_of.get(operation.invoke.index, [])
        is_seen = any(send.value in logs.keys[send.key].reads for send in sends)
        if (operation.kind is EventKind.OK and sends) or is_seen:
            findings.add(
                "zombie-commit",
                f"transaction {name} was to be committed, and was, after another producer had "
                f"taken {life.transactional_id!r} over",
                (life.succeeded, asked, operation.index),
            )


def _check_total(logs: LogReading, findings: Findings) -> None:
    total = 0
    unbalanced: list[str] = []
    for sends in logs.sends_of.values():
        seen = [send for send in sends if send.value in logs.keys[send.key].reads]
        amount = sum(amount_of(send.value) for send in seen)
        total += amount
        if amount and sends[0].is_transaction:
            name = sends[0].operation.extra.get("name", sends[0].operation.index)
            unbalanced.append(f"{name} by {amount:+d}")
    if total:
        findings.add(
            "bank-total",
            f"all amounts together are {total:+d}: {', '.join(unbalanced[:4]) or 'of no one'}",
        )


def _check_outputs(reading: TransactionReading, logs: LogReading, findings: Findings) -> None:
    outputs: dict[str, list[tuple[str, Value]]] = {}
    for log in logs.keys.values():
        for value in log.reads:
            made_of = input_of(value)
            if made_of is not None:
                outputs.setdefault(made_of, []).append((log.key, value))
    for key, end in reading.committed.items():
        known = logs.keys.get(key)
        for offset, value in known.values.items() if known is not None else ():
            _check_input(key, offset, end, value, outputs.get(str(value), []), findings)
    findings.figures["outputs"] = len(outputs)


def _check_input(
    key: str,
    offset: int,
    end: int,
    value: Value,
    made: list[tuple[str, Value]],
    findings: Findings,
) -> None:
    places = ", ".join(f"{output!r} in {at}" for at, output in made)
    if offset < end and not made:
        findings.add(
            "lost-output",
            f"{key}: offset {end} is committed and nothing was made of {value!r} at {offset}",
            key=key,
        )
    elif offset >= end and made:
        findings.add(
            "early-output",
            f"{key}: {places} was made of {value!r} at {offset}, and {end} is committed",
            key=key,
        )
    if len(made) > 1:
        findings.add(
            "duplicate-output", f"{key}: of {value!r} at {offset} there is {places}", key=key
        )
