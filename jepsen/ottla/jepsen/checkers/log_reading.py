"""Index of a history of sends and polls by partition log: the senders, readers and offsets of each
record.

The module is pure. The history is read once, and then judged by many rules. A record must exist
only if it was acknowledged with acks=all. A send with fewer acks counts as a send with an unknown
outcome.
"""

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ottla.jepsen.checkers.compacted import record_key_of
from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.history import EventKind, History, Json, Operation

Value: TypeAlias = Hashable
"""Value of a record. It is unique within its key (partition), so that it identifies its sender."""

Records: TypeAlias = Sequence[Sequence[Json]]
"""Records of one partition as [offset, value] pairs, in the order of their arrival at a client."""


@dataclass(slots=True, eq=False)
class Send:
    """The send of one record by a client, with its outcome."""

    operation: Operation
    key: str
    value: Value
    offset: int | None
    """Acknowledged offset of the record, or None if the offset is unknown."""
    is_promised: bool
    """True if the record was acknowledged with acks=all. The record must then never be lost."""
    is_failed: bool
    """True if the record was certainly not appended to the log."""
    may_repeat: bool
    """True if the producer may have sent the record more than once, without a sequence number by
    which brokers drop duplicates."""
    is_transaction: bool


@dataclass(slots=True, eq=False)
class Poll:
    """The records that one operation received from the brokers."""

    operation: Operation
    records: Mapping[str, Records]
    """Records received, by key (partition). The records of several polls in one operation are
    concatenated."""
    is_ok: bool
    is_final: bool


@dataclass(slots=True, eq=False)
class KeyLog:
    """Content of one partition's log, as far as the history of the run shows it."""

    key: str
    sends: dict[Value, Send] = field(default_factory=dict)
    begun: dict[Value, int] = field(default_factory=dict)
    """Index of the event with which the send of each record value began."""
    reads: dict[Value, Poll] = field(default_factory=dict)
    """The first successful poll that received each record value."""
    values: dict[int, Value] = field(default_factory=dict)
    """For each offset, the first record value that was seen there."""
    conflicts: dict[int, set[Value]] = field(default_factory=dict)
    """For each offset at which several record values were seen, all of these values except the
    first."""
    offsets: dict[Value, set[int]] = field(default_factory=dict)
    """Every offset at which each record value was acknowledged or read."""
    polled: list[int] = field(default_factory=list)
    """All offsets of the partition that polls returned, ascending. Every reader must read these
    offsets in this order, without gaps."""
    position: dict[int, int] = field(default_factory=dict)
    """For each offset in `polled` (all offsets that polls returned), the index of the offset in
    that list."""
    seen_of: dict[int, list[int]] = field(default_factory=dict)
    """For each record key, the offsets that polls returned, ascending. Empty unless the log is
    compacted."""

    def offset_min(self, send: Send) -> int | None:
        """Return the lowest known offset of a sent record, or None if its offset is unknown."""
        return min(self.offsets.get(send.value, ()), default=None)


class LogReading:
    """Index of a history of sends and polls, by partition log."""

    def __init__(self, history: History, facts: RunFacts) -> None:
        self.history = history
        self.keys: dict[str, KeyLog] = {}
        self.sends: list[Send] = []
        self.sends_of: dict[int, list[Send]] = {}
        """Sends of each operation, by the index of the operation's invocation event."""
        self.polls: list[Poll] = []
        self._facts = facts
        for operation in history.operations("send", "poll", "txn"):
            self._take(operation)
        for poll in self.polls:
            self._learn_poll(poll)
        for log in self.keys.values():
            log.polled = sorted(log.values)
            log.position = {offset: place for place, offset in enumerate(log.polled)}
            for offset in log.polled if facts.record_key_count else ():
                record_key = record_key_of(log.values[offset], facts.record_key_count)
                log.seen_of.setdefault(record_key, []).append(offset)
        for send in self.sends:
            if send.offset is not None and self.must_have_committed(send):
                self._learn(self.keys[send.key], send.offset, send.value)
        for log in self.keys.values():
            for offset, value in _pairs(log):
                log.offsets.setdefault(value, set()).add(offset)

    @staticmethod
    def of(history: History, facts: RunFacts) -> "LogReading":
        """Return the index of a history. It is built at the first call and then stored with the
        history."""
        key = (LogReading, facts.acks, facts.idempotent, facts.record_key_count)
        if key not in history.readings:
            history.readings[key] = LogReading(history, facts)
        found = history.readings[key]
        assert isinstance(found, LogReading)
        return found

    @property
    def has_final_reads(self) -> bool:
        """True if a final read (at the end of the run) has reached the end of a log."""
        return any(poll.is_final and poll.is_ok for poll in self.polls)

    def poll_of(self, operation: Operation) -> Mapping[str, Records] | None:
        """Return the records that a client operation received, by key (partition), or None if the
        operation is not known to have read anything."""
        for poll in self.polls:
            if poll.operation is operation:
                return poll.records
        return None

    def must_have_committed(self, send: Send) -> bool:
        """Return whether a sent record must be in the log: it was acknowledged with acks=all, or a
        consumer has read another record of its transaction."""
        if send.is_promised:
            return True
        if send.is_failed:
            return False
        together = self.sends_of[send.operation.invoke.index] if send.is_transaction else [send]
        return any(other.value in self.keys[other.key].reads for other in together)

    def is_superseded(self, log: KeyLog, value: Value, by: int | None = None) -> bool:
        """Return True if compaction may have removed a record value, because a later value of the
        same record key was read. If `by` is not None, the send of the later value must have begun
        before the event with this index."""
        if not self._facts.record_key_count:
            return False
        offsets = log.offsets.get(value)
        latest = -1 if offsets is None else max(offsets)
        seen = log.seen_of.get(record_key_of(value, self._facts.record_key_count), [])
        for offset in seen[bisect_right(seen, latest) :]:
            other = log.sends.get(log.values[offset])
            if other is None or other.value == value:
                continue
            is_in_time = by is None or other.operation.invoke.index < by
            # A value of unknown offset is above every offset acknowledged before its send began.
            is_behind = offsets is not None or other.operation.index > log.begun[value]
            if is_in_time and is_behind:
                return True
        return False

    def _take(self, operation: Operation) -> None:
        extra = operation.extra
        is_transaction = operation.invoke.f == "txn"
        kind = operation.kind
        records: dict[str, list[Sequence[Json]]] = {}
        sends: list[Send] = []
        steps = operation.value
        if not isinstance(steps, list | tuple):
            return  # The poll of a group member is judged by the groups checker.
        for step in steps:
            if step[0] == "send":
                sends.append(self._send(operation, step, extra, is_transaction))
            elif len(step) > 1:
                for key, found in step[1].items():
                    records.setdefault(key, []).extend(found)
        if sends:
            self.sends_of[operation.invoke.index] = sends
            self.sends.extend(sends)
        if records or not sends:
            is_final = bool(extra.get("final"))
            self.polls.append(Poll(operation, records, kind is EventKind.OK, is_final))

    def _send(
        self, operation: Operation, step: Json, extra: Mapping[str, Json], is_transaction: bool
    ) -> Send:
        key, at = step[1], step[2]
        # An invocation has a value; a completion has [offset, value].
        offset, value = at if isinstance(at, list | tuple) else (None, at)
        kind = operation.kind
        has_all_acks = str(extra.get("acks", self._facts.acks)) in ("all", "-1")
        is_acknowledged = kind is EventKind.OK or (
            kind is EventKind.INFO and offset is not None and not is_transaction
        )
        is_idempotent = is_transaction or extra.get("idempotent", self._facts.idempotent)
        send = Send(
            operation,
            key,
            value,
            offset if has_all_acks else None,
            has_all_acks and is_acknowledged,
            kind is EventKind.FAIL,
            not is_idempotent and extra.get("retries") != 0,
            is_transaction,
        )
        log = self._log(key)
        if value in log.sends:
            raise ValueError(f"{key}: {value!r} was sent twice; values must be unique")
        log.sends[value] = send
        log.begun[value] = operation.invoke.index
        return send

    def _log(self, key: str) -> KeyLog:
        log = self.keys.get(key)
        if log is None:
            log = self.keys[key] = KeyLog(key)
        return log

    def _learn_poll(self, poll: Poll) -> None:
        for key, records in poll.records.items():
            log = self._log(key)
            # Local names, because this loop runs for millions of records.
            known, read = log.values.setdefault, log.reads.setdefault
            is_ok = poll.is_ok
            for offset, value in records:
                if known(offset, value) != value:
                    log.conflicts.setdefault(offset, set()).add(value)
                if is_ok:
                    read(value, poll)

    def _learn(self, log: KeyLog, offset: int, value: Value) -> None:
        if log.values.setdefault(offset, value) != value:
            log.conflicts.setdefault(offset, set()).add(value)


def _pairs(log: KeyLog) -> Iterator[tuple[int, Value]]:
    yield from log.values.items()
    for offset, values in log.conflicts.items():
        for value in values:
            yield offset, value


def indexes(operations: Iterable[Operation | None]) -> tuple[int, ...]:
    """Return the indexes of the events of operations that prove an anomaly, sorted and without
    duplicates."""
    return tuple(sorted({operation.index for operation in operations if operation is not None}))
