"""What clients and faults did in one run: events in the order in which they were seen.

Pure: the clock is handed in.  A process is one client that does one thing at a time; when it cannot
know how an operation ended (INFO) it never acts again, and its thread goes on under a new number.
So an operation without an answer stays open permanently, as it may still take effect.

A history file has one event a line: {"index", "time", "process", "type", "f", "value"}, "error" and
"extra" where there are any; `time` is nanoseconds since the run began.  Which values each `f` has
is told by the workload (`workloads/`) and read by the checkers.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeAlias

from ottla.model.garbage import collection_paused

Json: TypeAlias = Any
"""What JSON can say: None, bool, int, float, str, and lists and string-keyed dicts of them."""

NEMESIS = -1
"""The process whose events are faults; clients are 0 and above."""

NO_EXTRA: Mapping[str, Json] = MappingProxyType({})


class EventKind(StrEnum):
    """What an event says of its operation."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    """It certainly did not happen."""
    INFO = "info"
    """Nobody knows, nor will: it may yet happen."""


KINDS = {kind.value: kind for kind in EventKind}


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a history."""

    index: int
    time_ns: int
    """Monotonic, since the run began."""
    process: int
    kind: EventKind
    f: str
    value: Json = None
    error: str | None = None
    extra: Mapping[str, Json] = field(default_factory=lambda: NO_EXTRA)
    """What is not the operation itself: which client, which node, keys that were rebalanced, …"""

    def to_json(self) -> dict[str, Json]:
        """Return the event as an object of a history file."""
        told: dict[str, Json] = {
            "index": self.index,
            "time": self.time_ns,
            "process": self.process,
            "type": self.kind.value,
            "f": self.f,
            "value": self.value,
        }
        if self.error is not None:
            told["error"] = self.error
        if self.extra:
            told["extra"] = dict(self.extra)
        return told

    @staticmethod
    def from_json(told: Mapping[str, Json]) -> "Event":
        """Read an object of a history file; KeyError when it is none."""
        return Event(
            told["index"],
            told["time"],
            told["process"],
            KINDS[told["type"]],
            told["f"],
            told.get("value"),
            told.get("error"),
            told.get("extra", NO_EXTRA),
        )


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing a client did: its beginning and, if it ended, how."""

    invoke: Event
    completion: Event | None = None
    """None: the run ended first, which tells as little as INFO."""

    @property
    def kind(self) -> EventKind:
        """Return OK, FAIL or INFO."""
        return EventKind.INFO if self.completion is None else self.completion.kind

    @property
    def value(self) -> Json:
        """Return what the operation came to; what was asked for when that is unknown."""
        if self.completion is None or self.completion.value is None:
            return self.invoke.value
        return self.completion.value

    @property
    def extra(self) -> Mapping[str, Json]:
        """Return the completion's extra over the invocation's."""
        if self.completion is None or not self.completion.extra:
            return self.invoke.extra
        if not self.invoke.extra:
            return self.completion.extra
        return {**self.invoke.extra, **self.completion.extra}

    @property
    def index(self) -> int:
        """Return the index of its last event, the one that proves what it saw."""
        return self.invoke.index if self.completion is None else self.completion.index


class History:
    """The events of a run; immutable once made."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events: tuple[Event, ...] = tuple(events)
        self.readings: dict[object, Any] = {}
        """What checkers have worked out of it, so that the next one need not."""
        self._operations: tuple[Operation, ...] | None = None

    def operations(self, *f: str) -> Sequence[Operation]:
        """Return clients' operations, those named `f` if given, in order of their invocations."""
        if self._operations is None:
            self._operations = tuple(_paired(self.events))
        if not f:
            return self._operations
        return [operation for operation in self._operations if operation.invoke.f in f]

    def nemesis(self) -> Sequence[Event]:
        """Return the faults' events."""
        return [event for event in self.events if event.process == NEMESIS]

    @property
    def end_ns(self) -> int:
        """Return the time of the last event; 0 when there is none."""
        return self.events[-1].time_ns if self.events else 0

    def to_lines(self) -> Iterator[str]:
        """Yield the lines of a history file, each with its line end."""
        return (event_line(event) for event in self.events)

    @staticmethod
    def from_lines(lines: Iterable[str]) -> "History":
        """Read a history file; a last line that was cut off is left out, any other raises."""
        with collection_paused():
            return History(_read(lines))


def event_line(event: Event) -> str:
    """Return an event as one line of a history file, with its line end."""
    return json.dumps(event.to_json(), separators=(",", ":")) + "\n"


class Recorder:
    """Writes a history down while it happens.

    `clock_ns` tells the time since the run began; `sink` gets each event at once (to have it on
    disk when the harness itself dies).
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
        """Return the number under which a thread acts now."""
        return self._processes[thread]

    def invoke(
        self, process: int, f: str, value: Json = None, extra: Mapping[str, Json] = NO_EXTRA
    ) -> Event:
        """Note that a process begins an operation."""
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
        """Note how an operation ended; `value` None keeps what was asked for."""
        assert kind is not EventKind.INVOKE
        process = invoke.process
        assert self._open.pop(process, None) is invoke, "this operation is not under way"
        value = invoke.value if value is None else value
        event = self._add(process, kind, invoke.f, value, error, extra)
        if kind is EventKind.INFO:
            self._processes[process % self._concurrency] = process + self._concurrency
        return event

    def nemesis(self, f: str, value: Json = None, error: str | None = None) -> Event:
        """Note what was done to the cluster."""
        return self._add(NEMESIS, EventKind.INFO, f, value, error, NO_EXTRA)

    def note(
        self, process: int, f: str, value: Json = None, extra: Mapping[str, Json] = NO_EXTRA
    ) -> Event:
        """Note what happened beside the operations of threads: begun and done at one instant.

        `process` is a number that no thread ever gets, as its thread may be within an operation.
        """
        assert process >= 0
        self._add(process, EventKind.INVOKE, f, value, None, extra)
        return self._add(process, EventKind.OK, f, value, None, extra)

    def history(self) -> History:
        """Return all that was noted so far."""
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
    """Pair each invocation with the next other event of its process."""
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
            told = json.loads(line)
        except json.JSONDecodeError:
            # Only a line without its end can have been cut off: the file's last.
            if line.endswith("\n"):
                raise
            return
        yield Event.from_json(told)
