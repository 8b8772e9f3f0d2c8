"""Checker of a list-offsets history: a reported end offset is above every offset acknowledged
before the request.

The module is pure. The value of an end-offset operation is [key, offset].

- stale-end-offset: a reported end offset is not above an offset that was acknowledged before the
  request.
- end-offset-went-back: a reported end offset is lower than an earlier one of the same leader epoch
  or an older one.

A deposed leader that does not know its successor may report a lower offset, if the client does not
know the successor either. This is allowed, and reported under one of two other names:

- stale-end-offset-of-a-deposed-leader: the leader epoch is older than the epoch of another
  response.
- stale-end-offset-of-an-unknown-leader: the client does not expose the leader epoch.

A lower offset is never allowed at the end, when all faults are healed. It is also not allowed if
the offset was acknowledged to the requesting process itself, unless the operation has the extra
`own_view` false. This extra means that one client object of the process produces, and another sends
the request.
"""

from dataclasses import dataclass, field

from ottla.jepsen.checkers.log_reading import LogReading, Send, indexes
from ottla.jepsen.checkers.verdict import Findings, RunFacts, Verdict
from ottla.jepsen.history import EventKind, History, Operation

DEPOSED = "stale-end-offset-of-a-deposed-leader"
UNKNOWN = "stale-end-offset-of-an-unknown-leader"
ALLOWED = frozenset({DEPOSED, UNKNOWN})


@dataclass(slots=True)
class KeyEnd:
    """Known offsets of one key (partition), from the part of the history that was read so far."""

    acknowledged: Send | None = None
    """The send with the highest offset of the key that was acknowledged so far, or None."""
    own: dict[int, Send] = field(default_factory=dict)
    """For each process, the send with the highest offset of this key among the sends that were
    acknowledged to the process."""
    answers: dict[int, Operation] = field(default_factory=dict)
    """For each leader epoch of the key, the operation whose response had the highest end offset."""


def check_list_offsets(history: History, facts: RunFacts) -> Verdict:
    """Return the verdict on the end offsets that clients received from ListOffsets requests."""
    findings = Findings("list-offsets")
    reading = LogReading.of(history, facts)
    asked = [
        operation
        for operation in history.operations("end-offset")
        if operation.kind is EventKind.OK and operation.value[1] is not None
    ]
    newest_epoch: dict[str, int] = {}
    for operation in asked:
        epoch = operation.extra.get("leader_epoch")
        if epoch is not None:
            key = operation.value[0]
            newest_epoch[key] = max(newest_epoch.get(key, -1), epoch)
    moments: list[tuple[int, Operation, bool]] = []
    for operation in (*asked, *history.operations("send", "txn")):
        moments.append((operation.invoke.index, operation, True))
        moments.append((operation.index, operation, False))
    moments.sort(key=lambda moment: moment[0])
    ends: dict[str, KeyEnd] = {}
    for _, operation, is_begin in moments:
        if operation.invoke.f == "end-offset":
            end = ends.setdefault(operation.value[0], KeyEnd())
            if is_begin:
                _judge(operation, end, newest_epoch.get(operation.value[0], -1), findings)
            else:
                _note_answer(operation, end)
        elif not is_begin:
            for send in reading.sends_of.get(operation.invoke.index, ()):
                _note_send(send, ends.setdefault(send.key, KeyEnd()))
    findings.figures["answers"] = len(asked)
    findings.figures["keys"] = len(ends)
    return findings.verdict(facts, allowed=ALLOWED)


def _note_send(send: Send, end: KeyEnd) -> None:
    if not send.is_promised or send.offset is None:
        return
    process = send.operation.invoke.process
    end.acknowledged = max(end.acknowledged or send, send, key=_offset)
    end.own[process] = max(end.own.get(process, send), send, key=_offset)


def _offset(send: Send) -> int:
    """Return the offset that was acknowledged for the record of a send."""
    assert send.offset is not None
    return send.offset


def _note_answer(operation: Operation, end: KeyEnd) -> None:
    epoch = operation.extra.get("leader_epoch")
    if epoch is not None:
        before = end.answers.get(epoch)
        if before is None or operation.value[1] > before.value[1]:
            end.answers[epoch] = operation


def _judge(operation: Operation, end: KeyEnd, newest_epoch: int, findings: Findings) -> None:
    key, end_offset = operation.value
    epoch = operation.extra.get("leader_epoch")
    is_final = bool(operation.extra.get("final"))
    knows_own = operation.extra.get("own_view", True)
    own = end.own.get(operation.invoke.process) if knows_own else None
    missed = own if own is not None and end_offset <= _offset(own) else None
    is_certain = missed is not None or is_final
    highest = end.acknowledged
    if missed is None and highest is not None and end_offset <= _offset(highest):
        missed = highest
    if missed is not None:
        name = "stale-end-offset"
        if not is_certain and epoch is None:
            name = UNKNOWN
        elif not is_certain and epoch is not None and epoch < newest_epoch:
            name = DEPOSED
        findings.add(
            name,
            f"{key}: offset {missed.offset} was acknowledged before, it ends at {end_offset}",
            indexes([missed.operation, operation]),
            key,
        )
        return
    if epoch is None:
        return
    for earlier, answer in end.answers.items():
        if earlier <= epoch and answer.value[1] > end_offset:
            findings.add(
                "end-offset-went-back",
                f"{key}: the leader of epoch {earlier} returned {answer.value[1]}, "
                f"that of {epoch} {end_offset} later",
                indexes([answer, operation]),
                key,
            )
            return
