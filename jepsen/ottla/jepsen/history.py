"""The operations and faults of one run: events in the order in which they were recorded.

The module is pure: the clock is an argument. A process is one client that performs one operation at
a time. After an operation with an unknown outcome (INFO) the process never acts again, and its
thread continues under a new process number. An operation without a response therefore stays open
permanently, because it may still take effect.

A history file has one event per line: {"index", "time", "process", "type", "f", "value"}, and
optionally "error" and "extra"; `time` is nanoseconds since the start of the run. The workload
(`workloads/`) defines the values of each `f`, and the checkers interpret them.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeAlias

from ottla.model.garbage import collection_paused

Json: TypeAlias = Any
"""JSON value: None, bool, int, float, str, and lists and string-keyed dicts of them."""

NEMESIS = -1
"""Process number under which fault events are recorded. Clients have numbers from 0."""

NO_EXTRA: Mapping[str, Json] = MappingProxyType({})


class EventKind(StrEnum):
    """Kinds of events in a history: the start of an operation, or its outcome."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    """Outcome of an operation that certainly had no effect."""
    INFO = "info"
    """Outcome of an operation that will never be known: it may have had its effect, and may still
    have it later."""


KINDS = {kind.value: kind for kind in EventKind}


@dataclass(frozen=True, slots=True)
class Event:
    """One event in the history of a run, stored as one line of the history file."""

    index: int
    time_ns: int
    """Time of the event in ns since the start of the run, by a monotonic clock."""
    process: int
    kind: EventKind
    f: str
    value: Json = None
    error: str | None = None
    extra: Mapping[str, Json] = field(default_factory=lambda: NO_EXTRA)
    """Facts about the operation that are not part of its value, such as the client, the node, and
    the rebalanced keys."""

    def to_json(self) -> dict[str, Json]:
        """Return the event as a JSON object, in the form of a line of a history file."""
        data: dict[str, Json] = {
            "index": self.index,
            "time": self.time_ns,
            "process": self.process,
            "type": self.kind.value,
            "f": self.f,
            "value": self.value,
        }
        if self.error is not None:
            data["error"] = self.error
        if self.extra:
            data["extra"] = dict(self.extra)
        return data

    @staticmethod
    def from_json(data: Mapping[str, Json]) -> "Event":
        """Parse a JSON object from a history file, and return the event. Raises KeyError if the
        object is malformed."""
        return Event(
            data["index"],
            data["time"],
            data["process"],
            KINDS[data["type"]],
            data["f"],
            data.get("value"),
            data.get("error"),
            data.get("extra", NO_EXTRA),
        )


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a client: its start and, if it ended, its completion."""

    invoke: Event
    completion: Event | None = None
    """Event with the outcome of the operation. None if the run ended before the operation did. The
    outcome is then unknown, as after INFO."""

    @property
    def kind(self) -> EventKind:
        """Outcome of the operation (OK, FAIL or INFO). It is INFO if there is no completion."""
        return EventKind.INFO if self.completion is None else self.completion.kind

    @property
    def value(self) -> Json:
        """Value of the operation's completion event, or of its invocation event if there is no
        completion."""
        if self.completion is None or self.completion.value is None:
            return self.invoke.value
        return self.completion.value

    @property
    def extra(self) -> Mapping[str, Json]:
        """Additional data of the operation's invocation and completion events. The completion's
        data take precedence."""
        if self.completion is None or not self.completion.extra:
            return self.invoke.extra
        if not self.invoke.extra:
            return self.completion.extra
        return {**self.invoke.extra, **self.completion.extra}

    @property
    def index(self) -> int:
        """Index in the history of the operation's last event. The result of the operation is known
        from this event on."""
        return self.invoke.index if self.completion is None else self.completion.index


class History:
    """The events of a run, in order. Immutable."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events: tuple[Event, ...] = tuple(events)
        self.readings: dict[object, Any] = {}
        """Indexes of the history that checkers have built, by kind of index. They are kept so that
        other checkers can use them."""
        self._operations: tuple[Operation, ...] | None = None

    def operations(self, *f: str) -> Sequence[Operation]:
        """Return the operations of clients in the order of their invocations. If `f` is not empty,
        returns only operations with these names."""
        if self._operations is None:
            self._operations = tuple(_paired(self.events))
        if not f:
            return self._operations
        return [operation for operation in self._operations if operation.invoke.f in f]

    def nemesis(self) -> Sequence[Event]:
        """Return the events of faults that were injected or healed."""
        return [event for event in self.events if event.process == NEMESIS]

    @property
    def end_ns(self) -> int:
        """The time of the history's last event in ns since the start of the run, or 0 if the
        history is empty."""
        return self.events[-1].time_ns if self.events else 0

    def to_lines(self) -> Iterator[str]:
        """Yield the lines of the history's file, each with its line end."""
        return (event_line(event) for event in self.events)

    @staticmethod
    def from_lines(lines: Iterable[str]) -> "History":
        """Parse a history file, and return the history. An incomplete last line is ignored; any
        other malformed line raises an error."""
        with collection_paused():
            return History(_read(lines))


def event_line(event: Event) -> str:
    """Return an event as one line of a history file, with its line end."""
    return json.dumps(event.to_json(), separators=(",", ":")) + "\n"


class Recorder:
    """Recorder of a history during a run.

    `clock_ns` returns the time in ns since the start of the run. `sink` receives each event at
    once, so that it is on disk even if the harness dies.
    """

    def __init__(
        self,
        clock_ns: Callable[[], int],
        *,
        concurrency: int,
        sink: Callable[[Event], None] | None = None,
    ) -> None:
        self.events: list[Event] = []
        self._clock_ns = clock_ns
        self._concurrency = concurrency
        self._sink = sink
        self._processes = list(range(concurrency))
        self._open: dict[int, Event] = {}

    def process(self, thread: int) -> int:
        """Return the current process number of a workload's thread."""
        return self._processes[thread]

    def invoke(
        self, process: int, f: str, value: Json = None, extra: Mapping[str, Json] = NO_EXTRA
    ) -> Event:
        """Record that a process begins an operation. Returns the invocation event."""
        assert process == self._processes[process % self._concurrency], "this process is gone"
        assert process not in self._open, "a process does one thing at a time"
        event = self._add(process, EventKind.INVOKE, f, value, None, extra)
        self._open[process] = event
        return event

    def complete(
        self,
        invoke: Event,
        kind: EventKind,
        value: Json = None,
        error: str | None = None,
        extra: Mapping[str, Json] = NO_EXTRA,
    ) -> Event:
        """Record the outcome of an operation, and return the completion event. If `value` is None,
        the event has the value of the invocation."""
        assert kind is not EventKind.INVOKE
        process = invoke.process
        assert self._open.pop(process, None) is invoke, "this operation is not under way"
        value = invoke.value if value is None else value
        event = self._add(process, kind, invoke.f, value, error, extra)
        if kind is EventKind.INFO:
            self._processes[process % self._concurrency] = process + self._concurrency
        return event

    def nemesis(self, f: str, value: Json = None, error: str | None = None) -> Event:
        """Record a fault that was injected into the cluster or healed. Returns the event."""
        return self._add(NEMESIS, EventKind.INFO, f, value, error, NO_EXTRA)

    def note(
        self, process: int, f: str, value: Json = None, extra: Mapping[str, Json] = NO_EXTRA
    ) -> Event:
        """Record an event that is not part of a thread's operation, as an operation that starts and
        ends at the same instant. Returns the event.

        `process` must be a number that no thread uses, because the thread itself may be performing
        an operation at that time.
        """
        assert process >= 0
        self._add(process, EventKind.INVOKE, f, value, None, extra)
        return self._add(process, EventKind.OK, f, value, None, extra)

    def history(self) -> History:
        """Return the history with all events recorded so far."""
        return History(self.events)

    def _add(
        self,
        process: int,
        kind: EventKind,
        f: str,
        value: Json,
        error: str | None,
        extra: Mapping[str, Json],
    ) -> Event:
        index = len(self.events)
        event = Event(index, self._clock_ns(), process, kind, f, value, error, extra)
        assert not self.events or self.events[-1].time_ns <= event.time_ns, "time went back"
        self.events.append(event)
        if self._sink is not None:
            self._sink(event)
        return event


def _paired(events: Iterable[Event]) -> list[Operation]:
    """Return the client operations in `events`: each invocation is paired with the next event of
    the same process."""
    found: list[Operation | None] = []
    open_: dict[int, tuple[int, Event]] = {}
    for event in events:
        if event.process < 0:
            continue
        if event.kind is EventKind.INVOKE:
            open_[event.process] = (len(found), event)
            found.append(None)
        else:
            at, invoke = open_.pop(event.process)
            found[at] = Operation(invoke, event)
    for at, invoke in open_.values():
        found[at] = Operation(invoke)
    return [operation for operation in found if operation is not None]


def _read(lines: Iterable[str]) -> Iterator[Event]:
    for line in lines:
        try:
            data = json.loads(line)
        except json.JSONDecodeError:
            # Only the last line of a file can be incomplete, and it then lacks its line end.
            if line.endswith("\n"):
                raise
            return
        yield Event.from_json(data)
