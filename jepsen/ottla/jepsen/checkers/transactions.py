"""Judges what transactions promise beside the rules for logs: all or nothing, and never too early.

Pure, and linear in the history.  `log` and `cycles` judge the same history: aborted reads of
transactions that told their end (G1a), lost, doubled and torn ones, and what goes round (G0, G1c).
Here:

- G1a: what is read is of a transaction whose producer never asked to commit it;
- G1b: it was read before that was asked, or a reader passed over a part of it in one log;
- zombie-commit: a producer committed after its transactional id was taken over by another one;
- bank-total: the amounts that all transactions wrote do not add up to nothing, as each one's do;
- lost-output, duplicate-output, early-output: a record whose offset a transaction committed has not
  exactly one output that is committed, or one that is not committed has any.

Operations: `txn`, value a list of ["send", key, value], extra `name` and `producer`; `ask-commit`,
value that name, noted when the commit is asked for; `init`, extra `transactional_id` and
`producer`; `committed`, value {"group", "keys": {key: next offset}}, at the end with extra `final`.
An amount stands before the last part of a value, `name/+5/17`; what was made of an input ends with
`<` and the input's value.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ottla.jepsen.checkers.log_reading import LogReading, Poll, Send, Value, indexes
from ottla.jepsen.checkers.verdict import Findings, RunFacts, Verdict
from ottla.jepsen.history import EventKind, History, Json, Operation

OUTPUT_SIGN = "<"


def amount_of(value: Value) -> int:
    """Return the amount that a value names; 0 where it names none."""
    parts = str(value).split("/")
    return 0 if len(parts) < 3 or OUTPUT_SIGN in str(value) else int(parts[-2])


def input_of(value: Value) -> str | None:
    """Return the value that this one was made of, None for none."""
    return str(value).partition(OUTPUT_SIGN)[2] or None


@dataclass(slots=True)
class ProducerLife:
    """A producer from its taking over of a transactional id on."""

    transactional_id: str
    begun: int
    ended: int
    """The indexes of the events between which it took the id over."""
    succeeded: int | None = None
    """The index from which on another producer surely had the id."""


@dataclass(slots=True)
class TransactionReading:
    """What a history says of transactions."""

    transactions: dict[str, Operation] = field(default_factory=dict)
    """By name."""
    asked: dict[str, int] = field(default_factory=dict)
    """By name: the index of the event with which its commit was asked for."""
    lives: dict[str, ProducerLife] = field(default_factory=dict)
    """By producer."""
    committed: dict[str, int] = field(default_factory=dict)
    """By key: the offset that its group has committed at the end."""


def check_transactions(history: History, facts: RunFacts) -> Verdict:
    """Judge transactions."""
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
        f, told = operation.invoke.f, operation.extra
        if f == "txn" and "name" in told:
            reading.transactions[told["name"]] = operation
        elif f == "ask-commit":
            reading.asked[operation.invoke.value] = operation.invoke.index
        elif f == "init" and operation.kind is EventKind.OK and "producer" in told:
            reading.lives[told["producer"]] = ProducerLife(
                told["transactional_id"], operation.invoke.index, operation.index
            )
        elif f == "committed" and operation.kind is EventKind.OK and told.get("final"):
            reading.committed.update(_offsets(operation.value))
    _find_successors(reading.lives)
    return reading


def _offsets(value: Json) -> Iterator[tuple[str, int]]:
    for key, offset in value["keys"].items():
        yield key, 0 if offset is None else int(offset)


def _find_successors(lives: Mapping[str, ProducerLife]) -> None:
    """Learn when each producer surely had lost its id: another one began to take it later."""
    by_id: dict[str, list[ProducerLife]] = {}
    for life in lives.values():
        by_id.setdefault(life.transactional_id, []).append(life)
    for others in by_id.values():
        others.sort(key=lambda life: life.begun)
        # From the last to begin back: the first end of all that began from there on.
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
                continue  # `log` names what failed
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
    told = ", ".join(f"{output!r} in {at}" for at, output in made)
    if offset < end and not made:
        findings.add(
            "lost-output",
            f"{key}: offset {end} is committed and nothing was made of {value!r} at {offset}",
            key=key,
        )
    elif offset >= end and made:
        findings.add(
            "early-output",
            f"{key}: {told} was made of {value!r} at {offset}, and {end} is committed",
            key=key,
        )
    if len(made) > 1:
        findings.add(
            "duplicate-output", f"{key}: of {value!r} at {offset} there is {told}", key=key
        )
