"""Single anomalies planted into a valid queue history, for tests of checkers and reports.

A plant gets a valid history and returns one with exactly its anomaly, or None if the history has no
place for it. It chooses the place with the given random numbers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import TypeAlias

from ottla.jepsen.checkers.log_reading import KeyLog, LogReading, Poll, Send
from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.history import Event, EventKind, History, Json
from tests.jepsen.checkers.queue_histories import renumbered

Plant: TypeAlias = Callable[["Ground"], History | None]

Records: TypeAlias = list[tuple[int, Json]]


@dataclass(slots=True)
class Ground:
    """A valid history, and the chance that chooses where to plant."""

    history: History
    rng: Random
    reading: LogReading

    @staticmethod
    def of(history: History, rng: Random) -> "Ground":
        """Read a valid history."""
        return Ground(history, rng, LogReading(history, RunFacts()))

    def logs(self) -> list[KeyLog]:
        """Return the keys in an order that chance gives."""
        logs = [self.reading.keys[key] for key in sorted(self.reading.keys)]
        self.rng.shuffle(logs)
        return logs

    def final_polls(self, key: str) -> list[Poll]:
        """Return the last final poll of each process that saw something of a key."""
        last = {
            poll.operation.invoke.process: poll
            for poll in self.reading.polls
            if poll.is_final and poll.records.get(key)
        }
        return list(last.values())

    def with_records(self, changed: Mapping[int, Mapping[str, Records]]) -> History:
        """Return the history with other records in polls: by event index and key."""
        events = [
            event if event.index not in changed else _with_polls(event, changed[event.index])
            for event in self.history.events
        ]
        return renumbered(events)

    def without(self, key: str, offset: int, *, from_: Callable[[Poll], bool]) -> History:
        """Return the history in which some polls did not see a record."""
        changed: dict[int, dict[str, Records]] = {}
        for poll in self.reading.polls:
            records = poll.records.get(key, ())
            if from_(poll) and any(at == offset for at, _ in records):
                kept = [(at, value) for at, value in records if at != offset]
                changed[poll.operation.index] = {key: kept}
        return self.with_records(changed)

    def read_at_the_end(self, key: str, value: Json) -> History | None:
        """Return the history in which one final read saw one more record, behind all others."""
        return self.with_final_record(key, max(self.reading.keys[key].values) + 1, value)

    def with_final_record(self, key: str, offset: int, value: Json) -> History | None:
        """As above, at an offset behind all that final reads saw."""
        polls = self.final_polls(key)
        if not polls:
            return None
        poll = self.rng.choice(polls)
        records = [*_records(poll, key), (offset, value)]
        return self.with_records({poll.operation.index: {key: records}})


def _with_polls(event: Event, changed: Mapping[str, Records]) -> Event:
    """Return an event whose polls read these records of these keys: all in its first poll."""
    steps: list[Json] = []
    is_done = False
    for step in event.value:
        if step[0] != "poll" or len(step) < 2:
            steps.append(step)
            continue
        found = {key: records for key, records in step[1].items() if key not in changed}
        if not is_done:
            is_done = True
            found.update((key, [list(pair) for pair in pairs]) for key, pairs in changed.items())
        steps.append(["poll", {key: records for key, records in found.items() if records}])
    return replace(event, value=steps)


def _records(poll: Poll, key: str) -> Records:
    return [(offset, value) for offset, value in poll.records.get(key, ())]


def _added(
    history: History, f: str, kind: EventKind, asked: Json, answer: Json, *, place: int
) -> History:
    """Return the history with one more operation, of a new process, before the event at `place`."""
    process = max(event.process for event in history.events) + 1
    at_ns = history.events[place - 1].time_ns if place else 0
    own = [
        Event(0, at_ns, process, EventKind.INVOKE, f, asked),
        Event(0, at_ns, process, kind, f, answer),
    ]
    return renumbered([*history.events[:place], *own, *history.events[place:]])


# ---- which records there are


def _is_certain(log: KeyLog, send: Send) -> bool:
    """Return whether a record was acknowledged and read, and has one offset."""
    return send.is_promised and send.value in log.reads and len(log.offsets[send.value]) == 1


def lost_write(ground: Ground) -> History | None:
    """Take a promised record out of every poll, though later ones are read."""
    for log in ground.logs():
        known = [
            send
            for send in log.sends.values()
            if _is_certain(log, send) and send.offset is not None
        ]
        bound = max((min(log.offsets[value]) for value in log.reads), default=-1)
        below = [send for send in known if send.offset is not None and send.offset < bound]
        if below:
            send = ground.rng.choice(below)
            return ground.without(log.key, send.offset or 0, from_=lambda poll: True)
    return None


def lost_write_of_unknown_offset(ground: Ground) -> History | None:
    """As above, of a record whose sender did not get its offset."""
    for log in ground.logs():
        for send in log.sends.values():
            later = any(
                other.operation.invoke.index > send.operation.index and other.value in log.reads
                for other in log.sends.values()
            )
            offset = log.offset_min(send)
            if _is_certain(log, send) and send.offset is None and later:
                return ground.without(log.key, offset or 0, from_=lambda poll: True)
    return None


def unseen(ground: Ground) -> History | None:
    """Take the last record of a key out of every poll."""
    for log in ground.logs():
        end = max(log.values, default=-1)
        for send in log.sends.values():
            if send.is_promised and send.offset == end and log.polled[-1:] == [end]:
                return ground.without(log.key, end, from_=lambda poll: True)
    return None


def truncated_read(ground: Ground) -> History | None:
    """Take a record that was seen out of the final reads: it was shown and then cut off."""
    for log in ground.logs():
        end = max(log.values, default=-1)
        if any(
            poll.is_ok and not poll.is_final and any(at == end for at, _ in poll.records[log.key])
            for poll in ground.reading.polls
            if log.key in poll.records
        ):
            return ground.without(log.key, end, from_=lambda poll: poll.is_final)
    return None


def inconsistent_offsets(ground: Ground) -> History | None:
    """Have one of several readers see another value, of a send of unknown outcome."""
    for log in ground.logs():
        for offset in ground.rng.sample(log.polled, len(log.polled)):
            seers = [
                poll
                for poll in ground.reading.polls
                if any(at == offset for at, _ in poll.records.get(log.key, ()))
            ]
            if len([poll for poll in seers if poll.is_ok]) < 2:
                continue
            poll = ground.rng.choice(seers)
            changed = [
                (at, "foreign" if at == offset else value) for at, value in _records(poll, log.key)
            ]
            history = ground.with_records({poll.operation.index: {log.key: changed}})
            asked = [["send", log.key, "foreign"]]
            return _added(history, "send", EventKind.INFO, asked, asked, place=0)
    return None


def duplicate(ground: Ground) -> History | None:
    """Have a final read see a record a second time, behind all others."""
    for log in ground.logs():
        known = [value for value in log.reads if not log.sends[value].may_repeat]
        if known and ground.final_polls(log.key):
            return ground.read_at_the_end(log.key, ground.rng.choice(sorted(known, key=repr)))
    return None


def aborted_read(ground: Ground) -> History | None:
    """Have a final read return a record whose send failed."""
    for log in ground.logs():
        failed = [send for send in log.sends.values() if send.is_failed]
        if failed and ground.final_polls(log.key):
            return ground.read_at_the_end(log.key, ground.rng.choice(failed).value)
    return None


def phantom_read(ground: Ground) -> History | None:
    """Have a final read see a record that was never sent."""
    for log in ground.logs():
        if ground.final_polls(log.key):
            return ground.read_at_the_end(log.key, "phantom")
    return None


def precommitted_read(ground: Ground) -> History | None:
    """Have a transaction poll its own records."""
    logs = ground.logs()
    if not logs:
        return None
    key = logs[0].key
    end = max(ground.reading.keys[key].values, default=-1) + 1
    asked = [["send", key, "own"], ["poll"]]
    result = [["send", key, [end, "own"]], ["poll", {key: [[end, "own"]]}]]
    finals = [event.index for event in ground.history.events if event.extra.get("final")]
    place = min(finals, default=len(ground.history.events))
    history = _added(ground.history, "txn", EventKind.OK, asked, result, place=place)
    return Ground.of(history, ground.rng).with_final_record(key, end, "own")


def torn_transaction(ground: Ground) -> History | None:
    """Take a record out of every poll whose transaction has an unknown outcome."""
    for sends in ground.reading.sends_of.values():
        logs = [ground.reading.keys[send.key] for send in sends]
        seen = [s for s, log in zip(sends, logs, strict=True) if s.value in log.reads]
        if not sends[0].is_transaction or sends[0].is_promised or len(seen) < 2:
            continue
        send = ground.rng.choice(seen)
        offset = ground.reading.keys[send.key].offset_min(send)
        return ground.without(send.key, offset or 0, from_=lambda poll: True)
    return None


# ---- in which order


def _consecutive(ground: Ground) -> Iterator[tuple[KeyLog, Poll, Poll]]:
    """Yield the records of one key in two successive polls of one process, with nothing in
    between."""
    last: dict[int, Poll] = {}
    by_index = {poll.operation.invoke.index: poll for poll in ground.reading.polls if poll.is_ok}
    subscribed: set[int] = set()
    for operation in ground.history.operations():
        process = operation.invoke.process
        if operation.invoke.f in ("assign", "subscribe"):
            subscribed.discard(process)
            if operation.invoke.f == "subscribe":
                subscribed.add(process)
        poll = by_index.get(operation.invoke.index)
        if poll is None or process in subscribed:
            last.pop(process, None)
            continue
        before = last.get(process)
        last[process] = poll
        for key, records in poll.records.items():
            if before is not None and records and before.records.get(key):
                yield ground.reading.keys[key], before, poll


def poll_skip(ground: Ground) -> History | None:
    """Leave out the first record that a poll returned after another one."""
    for log, _, poll in _shuffled(ground, _consecutive(ground)):
        records = _records(poll, log.key)
        seen_elsewhere = _seers(ground, log, records[0][0]) > 1
        if len(records) > 1 and seen_elsewhere:
            return ground.with_records({poll.operation.index: {log.key: records[1:]}})
    return None


def nonmonotonic_poll(ground: Ground) -> History | None:
    """Have a poll return the last record of the poll before it again."""
    for log, before, poll in _shuffled(ground, _consecutive(ground)):
        records = [_records(before, log.key)[-1], *_records(poll, log.key)]
        return ground.with_records({poll.operation.index: {log.key: records}})
    return None


def _ok_polls(ground: Ground) -> Iterator[tuple[KeyLog, Poll]]:
    for poll in ground.reading.polls:
        is_rebalanced = bool(poll.operation.extra.get("rebalanced"))
        if poll.is_ok and not is_rebalanced:
            for key in poll.records:
                yield ground.reading.keys[key], poll


def int_poll_skip(ground: Ground) -> History | None:
    """Leave out a record in the middle of a poll."""
    for log, poll in _shuffled(ground, _ok_polls(ground)):
        records = _records(poll, log.key)
        if len(records) > 2 and _seers(ground, log, records[1][0]) > 1:
            kept = [records[0], *records[2:]]
            return ground.with_records({poll.operation.index: {log.key: kept}})
    return None


def int_nonmonotonic_poll(ground: Ground) -> History | None:
    """Have a poll return its last record twice."""
    for log, poll in _shuffled(ground, _ok_polls(ground)):
        records = _records(poll, log.key)
        if records:
            records.append(records[-1])
            return ground.with_records({poll.operation.index: {log.key: records}})
    return None


def _swapped(ground: Ground, log: KeyLog, first: Send, second: Send) -> History:
    """Return the history in which two records have each other's places, for all readers."""
    other = {first.value: second.value, second.value: first.value}
    place = {first.value: log.offset_min(second), second.value: log.offset_min(first)}
    events: list[Event] = []
    for event in ground.history.events:
        if event.kind is EventKind.INVOKE or event.f not in ("send", "poll", "txn"):
            events.append(event)
            continue
        steps: list[Json] = []
        for step in event.value:
            if step[0] == "poll" and len(step) > 1 and log.key in step[1]:
                pairs = [[at, other.get(value, value)] for at, value in step[1][log.key]]
                steps.append(["poll", {**step[1], log.key: pairs}])
            elif step[0] == "send" and step[1] == log.key and isinstance(step[2], list):
                offset, value = step[2]
                result = place.get(value, offset) if offset is not None else None
                steps.append(["send", log.key, [result, value]])
            else:
                steps.append(step)
        events.append(replace(event, value=steps))
    return renumbered(events)


def _neighbours(ground: Ground) -> Iterator[tuple[KeyLog, Send, Send]]:
    """Yield records next to each other, both seen and certain, each sent once."""
    for log in ground.logs():
        offsets = sorted(log.values)
        for earlier, later in pairwise(offsets):
            first, second = log.sends[log.values[earlier]], log.sends[log.values[later]]
            if _is_certain(log, first) and _is_certain(log, second):
                yield log, first, second


def _one_after_the_other(first: Send, second: Send) -> bool:
    """Return whether two operations, each of one send alone, were one after the other."""
    return first.operation.index < second.operation.invoke.index and all(
        len(send.operation.invoke.value) == 1 for send in (first, second)
    )


def nonmonotonic_send(ground: Ground) -> History | None:
    """Put a process's record before the one it had sent before."""
    for log, first, second in _shuffled(ground, _neighbours(ground)):
        is_own = first.operation.invoke.process == second.operation.invoke.process
        if is_own and _one_after_the_other(first, second):
            return _swapped(ground, log, first, second)
    return None


def realtime_order(ground: Ground) -> History | None:
    """Put a process's record before one that was acknowledged to another before it was sent."""
    for log, first, second in _shuffled(ground, _neighbours(ground)):
        is_own = first.operation.invoke.process == second.operation.invoke.process
        if not is_own and _one_after_the_other(first, second):
            return _swapped(ground, log, first, second)
    return None


def int_nonmonotonic_send(ground: Ground) -> History | None:
    """Exchange the places of two records that one operation sent."""
    for log, first, second in _shuffled(ground, _neighbours(ground)):
        is_pair = first.operation is second.operation and not first.may_repeat
        if is_pair and len(first.operation.invoke.value) == 2:
            return _swapped(ground, log, first, second)
    return None


def int_send_skip(ground: Ground) -> History | None:
    """Put a foreign record between two of one transaction, which is allowed."""
    for log, first, second in _shuffled(ground, _neighbours(ground)):
        offset = (log.offset_min(second) or 0) - 1
        is_pair = first.operation is second.operation and first.is_transaction
        if not is_pair or offset in log.values:
            continue
        changed: dict[int, dict[str, Records]] = {}
        for poll in ground.reading.polls:
            records = _records(poll, log.key)
            places = [place for place, record in enumerate(records) if record[0] == offset + 1]
            for place in places:
                records.insert(place, (offset, "foreign"))
                changed[poll.operation.index] = {log.key: records}
        asked = [["send", log.key, "foreign"]]
        history = ground.with_records(changed)
        return _added(history, "send", EventKind.INFO, asked, asked, place=0)
    return None


def _seers(ground: Ground, log: KeyLog, offset: int) -> int:
    """Return how often successful polls saw an offset."""
    return sum(
        1
        for poll in ground.reading.polls
        if poll.is_ok and any(at == offset for at, _ in poll.records.get(log.key, ()))
    )


def _shuffled(ground: Ground, found: Iterator[Json]) -> list[Json]:
    places = list(found)
    ground.rng.shuffle(places)
    return places


PLANTS: dict[str, Sequence[Plant]] = {
    "lost-write": (lost_write, lost_write_of_unknown_offset),
    "unseen": (unseen,),
    "truncated-read": (truncated_read,),
    "inconsistent-offsets": (inconsistent_offsets,),
    "duplicate": (duplicate,),
    "G1a": (aborted_read,),
    "phantom-read": (phantom_read,),
    "precommitted-read": (precommitted_read,),
    "torn-transaction": (torn_transaction,),
    "poll-skip": (poll_skip,),
    "nonmonotonic-poll": (nonmonotonic_poll,),
    "int-poll-skip": (int_poll_skip,),
    "int-nonmonotonic-poll": (int_nonmonotonic_poll,),
    "nonmonotonic-send": (nonmonotonic_send,),
    "realtime-order": (realtime_order,),
    "int-nonmonotonic-send": (int_nonmonotonic_send,),
    "int-send-skip": (int_send_skip,),
}
"""By the anomaly that each plants."""


def planted(anomaly: str, history: History, rng: Random) -> History | None:
    """Plant an anomaly into a valid history; None where there is no place for it."""
    plants = list(PLANTS[anomaly])
    rng.shuffle(plants)
    for plant in plants:
        found = plant(Ground.of(history, rng))
        if found is not None:
            return found
    return None
