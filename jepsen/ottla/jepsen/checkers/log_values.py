"""Rules about which records exist: none is lost, duplicated, invented or changed.

The module is pure.

- inconsistent-offsets: an offset has two values.
- duplicate: a value has two offsets.
- lost-write: a poll read past the offset of a record that must exist, and no poll returned that
  record.
- unseen: an acknowledged record had not been read when all final reads were over. It may be lost or
  late.
- G1a: a record was read whose send certainly failed.
- phantom-read: a record was read that no client sent.
- precommitted-read: a transaction read a record of its own.
- torn-transaction: some records of a transaction exist, and others do not.
- truncated-read: a poll returned a record above the end that final reads found, so the record was
  readable before it was safely replicated.

In a compacted log a value may be missing if a later value of its key was read.
"""

from ottla.jepsen.checkers.log_reading import KeyLog, LogReading, Poll, Send, Value, indexes
from ottla.jepsen.checkers.verdict import Findings

ALLOWED = frozenset({"duplicate-of-a-retry"})
"""Names of the anomalies that never fail a run. A producer without idempotence may append a record
twice when it retries."""


def check_values(reading: LogReading, findings: Findings) -> None:
    """Report every violation of the rules about which records exist."""
    has_final_reads = reading.has_final_reads
    unseen_count = 0
    for log in reading.keys.values():
        _check_one_value_an_offset(log, findings)
        _check_one_offset_a_value(log, findings)
        _check_reads(log, findings)
        lost = _check_nothing_lost(reading, log, findings)
        unseen = [
            send
            for send in log.sends.values()
            if send.is_promised
            and send.value not in log.reads
            and send.value not in lost
            and not reading.is_superseded(log, send.value)
        ]
        unseen_count += len(unseen)
        if has_final_reads:
            for send in unseen:
                findings.add(
                    "unseen",
                    f"{log.key}: {send.value!r} was acknowledged at offset {send.offset} "
                    "and no final read found it",
                    (send.operation.index,),
                    log.key,
                )
    if unseen_count and not has_final_reads and reading.polls:
        findings.undecided.append(f"{unseen_count} records were never read, nor were final reads")
    _check_polls_of_own_sends(reading, findings)
    if has_final_reads:
        _check_transactions_whole(reading, findings)
        _check_nothing_truncated(reading, findings)
    findings.figures["unseen"] = unseen_count


def _check_one_value_an_offset(log: KeyLog, findings: Findings) -> None:
    for offset, others in log.conflicts.items():
        values = [log.values[offset], *sorted(others, key=repr)]
        values_text = ", ".join(repr(value) for value in values)
        findings.add(
            "inconsistent-offsets",
            f"{log.key}: offset {offset} holds {values_text}",
            _who_knows(log, values),
            log.key,
        )


def _check_one_offset_a_value(log: KeyLog, findings: Findings) -> None:
    for value, offsets in log.offsets.items():
        if len(offsets) < 2:
            continue
        send = log.sends.get(value)
        findings.add(
            "duplicate-of-a-retry" if send is not None and send.may_repeat else "duplicate",
            f"{log.key}: {value!r} is at offsets {', '.join(map(str, sorted(offsets)))}",
            _who_knows(log, [value]),
            log.key,
        )


def _check_reads(log: KeyLog, findings: Findings) -> None:
    for value, poll in log.reads.items():
        send = log.sends.get(value)
        if send is None:
            findings.add(
                "phantom-read",
                f"{log.key}: {value!r} was read and no client sent it",
                (poll.operation.index,),
                log.key,
            )
        elif send.is_failed:
            findings.add(
                "G1a",
                f"{log.key}: {value!r} was read and its send had failed: "
                f"{send.operation.completion and send.operation.completion.error}",
                indexes([send.operation, poll.operation]),
                log.key,
            )


def _check_nothing_lost(reading: LogReading, log: KeyLog, findings: Findings) -> set[Value]:
    """Report the record values that are certainly lost from a log, and return these values."""
    bound = max((min(log.offsets[value]) for value in log.reads), default=-1)
    witness = log.values.get(bound)
    last_sent = -1
    """Index of the latest event that began the send of a record at or below the last read offset. A
    record acknowledged before that event has a lower offset, even if the history does not show its
    offset."""
    for send in log.sends.values():
        offset = log.offset_min(send)
        if offset is not None and offset <= bound:
            last_sent = max(last_sent, send.operation.invoke.index)
    lost: set[Value] = set()
    for value, send in log.sends.items():
        if value in log.reads or not reading.must_have_committed(send):
            continue
        offsets = log.offsets.get(value)
        if offsets is None:
            is_passed = send.is_promised and send.operation.index < last_sent
        else:
            is_passed = max(offsets) <= bound
        if is_passed and not reading.is_superseded(log, value):
            lost.add(value)
            reader = log.reads.get(witness)
            findings.add(
                "lost-write",
                f"{log.key}: {value!r}, acknowledged at offset {send.offset}, was never read, "
                f"though offset {bound} was",
                indexes([send.operation, reader.operation if reader else None]),
                log.key,
            )
    return lost


def _check_polls_of_own_sends(reading: LogReading, findings: Findings) -> None:
    for poll in reading.polls:
        for send in reading.sends_of.get(poll.operation.invoke.index, ()):
            records = poll.records.get(send.key, ())
            if poll.is_ok and any(value == send.value for _, value in records):
                findings.add(
                    "precommitted-read",
                    f"{send.key}: a transaction read {send.value!r}, which it had sent itself",
                    (poll.operation.index,),
                    send.key,
                )


def _check_transactions_whole(reading: LogReading, findings: Findings) -> None:
    """Report transactions with an unknown outcome if only some of their records exist."""
    for sends in reading.sends_of.values():
        if sends[0].is_promised or sends[0].is_failed or not sends[0].is_transaction:
            continue
        seen = [send for send in sends if send.value in reading.keys[send.key].reads]
        missing = [send for send in sends if send not in seen and send.offset is None]
        if seen and missing:
            findings.add(
                "torn-transaction",
                f"{seen[0].key}: {seen[0].value!r} of a transaction was read, "
                f"{missing[0].value!r} of {missing[0].key} was not",
                indexes([sends[0].operation]),
                missing[0].key,
            )


def _check_nothing_truncated(reading: LogReading, findings: Findings) -> None:
    last_read: dict[str, tuple[int, Poll]] = {}
    ends: dict[str, int] = {}
    for poll in reading.polls:
        for key, records in poll.records.items():
            highest = max((offset for offset, _ in records), default=-1)
            if poll.is_final:
                ends[key] = max(ends.get(key, -1), highest)
            elif highest > last_read.get(key, (-1, poll))[0]:
                last_read[key] = (highest, poll)
    for key, (offset, poll) in last_read.items():
        if offset > ends.get(key, -1):
            findings.add(
                "truncated-read",
                f"{key}: offset {offset} was read, final reads end at {ends.get(key)}",
                (poll.operation.index,),
                key,
            )


def _who_knows(log: KeyLog, values: list[Value]) -> tuple[int, ...]:
    """Return the indexes of the events that show that record values exist: the sends of the values
    and their first reads."""
    sends: list[Send | None] = [log.sends.get(value) for value in values]
    polls: list[Poll | None] = [log.reads.get(value) for value in values]
    return indexes(known.operation for known in (*sends, *polls) if known is not None)
