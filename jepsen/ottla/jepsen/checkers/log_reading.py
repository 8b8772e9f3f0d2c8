"""What a queue history says of each log: who sent what, who saw what, and at which offsets.

Pure.  Read once, then held to many rules.  A send promises something only when it was acknowledged
with acks=all; with fewer acks it counts as one of which nobody knows whether it happened.
"""

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ottla.jepsen.checkers.compacted import record_key_of
from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.history import EventKind, History, Json, Operation

Value: TypeAlias = Hashable
"""What was sent; unique for its key, so that it names its sender."""

Records: TypeAlias = Sequence[Sequence[Json]]
"""[offset, value] of each record, in the order in which they were seen."""


@dataclass(slots=True, eq=False)
class Send:
    """One record, as its sender knows it."""

    operation: Operation
    key: str
    value: Value
    offset: int | None
    """Where it was acknowledged, if that was told."""
    is_promised: bool
    """It was acknowledged: it must be there permanently."""
    is_failed: bool
    """It certainly was not appended."""
    may_repeat: bool
    """Its producer may have sent it more than once, and no broker knows."""
    is_transaction: bool


@dataclass(slots=True, eq=False)
class Poll:
    """What one operation saw."""

    operation: Operation
    records: Mapping[str, Records]
    """By key; of several polls in one operation, one after the other."""
    is_ok: bool
    is_final: bool


@dataclass(slots=True, eq=False)
class KeyLog:
    """All that is known of one partition."""

    key: str
    sends: dict[Value, Send] = field(default_factory=dict)
    begun: dict[Value, int] = field(default_factory=dict)
    """By value: the index of the event with which its send began."""
    reads: dict[Value, Poll] = field(default_factory=dict)
    """By value: the first successful poll that saw it."""
    values: dict[int, Value] = field(default_factory=dict)
    """By offset: the value that was first known there."""
    conflicts: dict[int, set[Value]] = field(default_factory=dict)
    """Offsets of which more than one value is told: all but the first."""
    offsets: dict[Value, set[int]] = field(default_factory=dict)
    """By value: every offset at which it is told to lie."""
    polled: list[int] = field(default_factory=list)
    """The offsets that any poll saw, ascending: this, without gaps, is the order to read."""
    position: dict[int, int] = field(default_factory=dict)
    """By polled offset: its place in that order."""
    seen_of: dict[int, list[int]] = field(default_factory=dict)
    """By record key: the offsets that any poll saw, ascending; only of a compacted log."""

    def offset_min(self, send: Send) -> int | None:
        """Return the lowest offset at which a record is known to lie."""
        return min(self.offsets.get(send.value, ()), default=None)


class LogReading:
    """A queue history, read."""

    def __init__(self, history: History, facts: RunFacts) -> None:
        self.history = history
        self.keys: dict[str, KeyLog] = {}
        self.sends: list[Send] = []
        self.sends_of: dict[int, list[Send]] = {}
        """By the index of the invocation."""
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
        """Return the reading of a history, made once."""
        key = (LogReading, facts.acks, facts.idempotent, facts.record_key_count)
        if key not in history.readings:
            history.readings[key] = LogReading(history, facts)
        found = history.readings[key]
        assert isinstance(found, LogReading)
        return found

    @property
    def has_final_reads(self) -> bool:
        """Whether anything was read to its end when all was over."""
        return any(poll.is_final and poll.is_ok for poll in self.polls)

    def poll_of(self, operation: Operation) -> Mapping[str, Records] | None:
        """Return what one operation saw, None where it is not known to have read."""
        for poll in self.polls:
            if poll.operation is operation:
                return poll.records
        return None

    def must_have_committed(self, send: Send) -> bool:
        """Return whether a record is in the log: promised, or of a transaction that was seen."""
        if send.is_promised:
            return True
        if send.is_failed:
            return False
        together = self.sends_of[send.operation.invoke.index] if send.is_transaction else [send]
        return any(other.value in self.keys[other.key].reads for other in together)

    def is_superseded(self, log: KeyLog, value: Value, by: int | None = None) -> bool:
        """Return whether compaction may have taken a value: a later one of its key was seen.

        `by` is the index of an event before which that must have been sent.
        """
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
            # A value of unknown place lies behind what was acknowledged before it was sent.
            is_behind = offsets is not None or other.operation.index > log.begun[value]
            if is_in_time and is_behind:
                return True
        return False

    def _take(self, operation: Operation) -> None:
        told = operation.extra
        is_transaction = operation.invoke.f == "txn"
        kind = operation.kind
        records: dict[str, list[Sequence[Json]]] = {}
        sends: list[Send] = []
        steps = operation.value
        if not isinstance(steps, list | tuple):
            return  # a member's poll: what it saw is judged with its group
        for step in steps:
            if step[0] == "send":
                sends.append(self._send(operation, step, told, is_transaction))
            elif len(step) > 1:
                for key, found in step[1].items():
                    records.setdefault(key, []).extend(found)
        if sends:
            self.sends_of[operation.invoke.index] = sends
            self.sends.extend(sends)
        if records or not sends:
            is_final = bool(told.get("final"))
            self.polls.append(Poll(operation, records, kind is EventKind.OK, is_final))

    def _send(
        self, operation: Operation, step: Json, told: Mapping[str, Json], is_transaction: bool
    ) -> Send:
        key, at = step[1], step[2]
        # Asked for as a value; answered as [offset, value].
        offset, value = at if isinstance(at, list | tuple) else (None, at)
        kind = operation.kind
        has_all_acks = str(told.get("acks", self._facts.acks)) in ("all", "-1")
        is_told = kind is EventKind.OK or (
            kind is EventKind.INFO and offset is not None and not is_transaction
        )
        is_idempotent = is_transaction or told.get("idempotent", self._facts.idempotent)
        send = Send(
            operation,
            key,
            value,
            offset if has_all_acks else None,
            has_all_acks and is_told,
            kind is EventKind.FAIL,
            not is_idempotent and told.get("retries") != 0,
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
            # Millions of records come by here.
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
    """Return the events that prove what a finding says, in order, each once."""
    return tuple(sorted({operation.index for operation in operations if operation is not None}))
