"""Rules about the order of records: the order of sends, and the order in which each consumer reads.

The module is pure. A consumer must read a log record by record:

- poll-skip: a consumer left out records that other consumers read.
- nonmonotonic-poll: a consumer went back, or read an offset twice.
- int-poll-skip, int-nonmonotonic-poll: the same within one operation.

A group may move keys between its members. So poll-skip and nonmonotonic-poll between two polls of a
group member are reported with the suffix -subscribed, and allowed.

A record that is sent after another one was acknowledged must have a higher offset:

- nonmonotonic-send: violated between sends of one process.
- realtime-order: violated between sends of two processes.
- int-nonmonotonic-send: violated within one operation.
- int-send-skip: a foreign record is between two records of one transaction, which is normal in
  Kafka.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ottla.jepsen.checkers.log_reading import KeyLog, LogReading, Poll, Records, Send, indexes
from ottla.jepsen.checkers.verdict import Findings
from ottla.jepsen.history import EventKind, Operation

SUBSCRIBED = "-subscribed"

ALLOWED = frozenset(
    {
        "int-send-skip",
        "int-nonmonotonic-send-of-retries",
        f"poll-skip{SUBSCRIBED}",
        f"nonmonotonic-poll{SUBSCRIBED}",
    }
)
"""Names of the anomalies that never fail a run. A producer without idempotence may retry a send
after a later send was appended."""


@dataclass(slots=True)
class ProcessReader:
    """Positions of one client process in the logs that it reads."""

    is_subscribed: bool = False
    last: dict[str, tuple[int, Operation]] = field(default_factory=dict)
    """Last offset that the process has read from each key (partition), and the poll that returned
    it."""

    def on_change(self, operation: Operation) -> None:
        """Drop the reading positions that an operation of the process, such as a new assignment,
        makes obsolete."""
        extra = operation.extra
        f = operation.invoke.f
        if f in ("assign", "subscribe") and operation.kind is not EventKind.FAIL:
            kept = frozenset(operation.invoke.value or ())
            if extra.get("final") or self.is_subscribed != (f == "subscribe"):
                # An assignment does not continue at the position of a group.
                kept = frozenset()
            self.is_subscribed = f == "subscribe"
            for key in list(self.last):
                name = key.rpartition("-")[0] if self.is_subscribed else key
                if name not in kept:
                    del self.last[key]
        elif extra.get("mode") == "subscribe":
            # The client subscribed earlier, under the number of a process that has since crashed.
            self.is_subscribed = True
        for key in (*extra.get("rebalanced", ()), *extra.get("rewound", ())):
            self.last.pop(key, None)


def polls_with_readers(reading: LogReading) -> Iterator[tuple[Poll, ProcessReader]]:
    """Yield the successful polls in the order of their invocations. Each poll is paired with the
    reading positions of its process at that time."""
    polls = {poll.operation.invoke.index: poll for poll in reading.polls if poll.is_ok}
    readers: dict[int, ProcessReader] = {}
    for operation in reading.history.operations():
        reader = readers.setdefault(operation.invoke.process, ProcessReader())
        reader.on_change(operation)
        poll = polls.get(operation.invoke.index)
        if poll is not None:
            yield poll, reader


def check_polls(reading: LogReading, findings: Findings) -> None:
    """Report every poll that does not continue at the last reading position of its consumer."""
    for poll, reader in polls_with_readers(reading):
        for key, records in poll.records.items():
            _check_poll(reading, reader, poll, reading.keys[key], records, findings)


def _check_poll(
    reading: LogReading,
    reader: ProcessReader,
    poll: Poll,
    log: KeyLog,
    records: Records,
    findings: Findings,
) -> None:
    if not records:
        return
    is_rebalanced = log.key in poll.operation.extra.get("rebalanced", ())
    offsets = [offset for offset, _ in records]
    before = reader.last.get(log.key)
    if before is not None:
        suffix = SUBSCRIBED if reader.is_subscribed else ""
        step = (before[0], offsets[0])
        _judge_step(reading, log, step, (before[1], poll.operation), ("", suffix), findings)
    place = log.position[offsets[0]]
    # One comparison of whole lists accepts nearly every poll.
    if not is_rebalanced and log.polled[place : place + len(offsets)] != offsets:
        for earlier, later in pairwise(offsets):
            step = (earlier, later)
            _judge_step(reading, log, step, (poll.operation,), ("int-", ""), findings)
    reader.last[log.key] = (offsets[-1], poll.operation)
    if is_rebalanced:
        del reader.last[log.key]


def _judge_step(
    reading: LogReading,
    log: KeyLog,
    offsets: tuple[int, int],
    operations: Sequence[Operation],
    name_parts: tuple[str, str],
    findings: Findings,
) -> None:
    earlier, later = offsets
    prefix, suffix = name_parts
    step = log.position[later] - log.position[earlier]
    if step > 1:
        skipped = log.polled[log.position[earlier] + 1 : log.position[later]]
        ended = operations[-1].index
        count = sum(not reading.is_superseded(log, log.values[at], ended) for at in skipped)
        if count:
            findings.add(
                f"{prefix}poll-skip{suffix}",
                f"{log.key}: a consumer went from offset {earlier} to {later}, "
                f"over {count} that others were shown",
                indexes(operations),
                log.key,
            )
    elif step < 1:
        findings.add(
            f"{prefix}nonmonotonic-poll{suffix}",
            f"{log.key}: a consumer was given offset {later} after {earlier}",
            indexes(operations),
            log.key,
        )


def check_sends(reading: LogReading, findings: Findings) -> None:
    """Report every record whose offset is not above an offset that was acknowledged before the
    record was sent."""
    _check_inside(reading, findings)
    ends: dict[str, tuple[int, Operation]] = {}
    """For each key (partition), the highest offset acknowledged so far, and the operation that
    received the acknowledgement."""
    own_ends: dict[tuple[int, str], tuple[int, Operation]] = {}
    for _, sends, is_begin in _moments(reading.sends_of):
        for send in sends:
            log = reading.keys[send.key]
            offset = log.offset_min(send)
            if offset is None:
                continue
            own = (send.operation.invoke.process, send.key)
            if is_begin:
                _check_behind(send, offset, ends.get(send.key), own_ends.get(own), findings)
            elif send.is_promised:
                mark = (offset, send.operation)
                ends[send.key] = max(ends.get(send.key, mark), mark, key=_offset)
                own_ends[own] = max(own_ends.get(own, mark), mark, key=_offset)


def _moments(
    sends_of: Mapping[int, Sequence[Send]],
) -> list[tuple[int, Sequence[Send], bool]]:
    """Return the start and the end of every operation that sends, in the order of the events, as
    (event index, records sent, is_begin)."""
    found: list[tuple[int, Sequence[Send], bool]] = []
    for begun, sends in sends_of.items():
        found.append((begun, sends, True))
        if sends[0].operation.completion is not None:
            found.append((sends[0].operation.index, sends, False))
    found.sort(key=lambda moment: moment[0])
    return found


def _check_behind(
    send: Send,
    offset: int,
    end: tuple[int, Operation] | None,
    own_end: tuple[int, Operation] | None,
    findings: Findings,
) -> None:
    if own_end is not None and offset <= own_end[0]:
        findings.add(
            "nonmonotonic-send",
            f"{send.key}: {send.value!r} is at {offset}, though its process sent it "
            f"after offset {own_end[0]} was acknowledged to it",
            indexes([own_end[1], send.operation]),
            send.key,
        )
    elif end is not None and offset <= end[0]:
        findings.add(
            "realtime-order",
            f"{send.key}: {send.value!r} is at {offset}, though it was sent "
            f"after offset {end[0]} was acknowledged to another process",
            indexes([end[1], send.operation]),
            send.key,
        )


def _check_inside(reading: LogReading, findings: Findings) -> None:
    for sends in reading.sends_of.values():
        if len(sends) < 2:
            continue
        last: dict[str, int] = {}
        for send in sends:
            log = reading.keys[send.key]
            offset = log.offset_min(send)
            if offset is None:
                continue
            before = last.get(send.key)
            last[send.key] = offset
            if before is None:
                continue
            if offset <= before:
                findings.add(
                    f"int-nonmonotonic-send{'-of-retries' if send.may_repeat else ''}",
                    f"{send.key}: {send.value!r} is at {offset}, what the same operation "
                    f"sent before it at {before}",
                    indexes([send.operation]),
                    send.key,
                )
            elif send.is_transaction and any(at in log.values for at in range(before + 1, offset)):
                findings.add(
                    "int-send-skip",
                    f"{send.key}: others' records lie between offsets {before} and {offset}, "
                    "which are of one transaction",
                    indexes([send.operation]),
                    send.key,
                )


def _offset(mark: tuple[int, Operation]) -> int:
    return mark[0]
