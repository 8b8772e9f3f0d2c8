"""The spans of time in which a fault was under way.

Pure.  Nemesis events are paired by name and, where they have one, by `id`: "start" opens a span,
"injected" adds what was done, the next "end" closes the oldest open one; an event without a phase
is a moment.  A span that was never closed lasts until the run's end.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ottla.jepsen.history import Event, History, Json
from ottla.jepsen.report.words import value_words

UNTOLD = {"phase", "nodes", "id", "clock_offsets_ms"}
"""Parts of a fault's value that are told otherwise, or in another picture."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, from its injection until it was healed; `[start_ns, end_ns)`."""

    name: str
    start_ns: int
    end_ns: int
    """Equal to `start_ns` for a fault of one moment."""
    nodes: tuple[str, ...] = ()
    detail: str = ""
    index: int = 0
    """The event that began it."""
    is_open: bool = False
    """Whether it was never healed."""

    @property
    def seconds(self) -> float:
        """Return how long it lasted."""
        return (self.end_ns - self.start_ns) / 1e9


def faults_of(history: History) -> Sequence[Fault]:
    """Return a run's faults in the order of their beginnings."""
    return _paired(history.nemesis(), history.end_ns)


def _paired(events: Iterable[Event], end_ns: int) -> Sequence[Fault]:
    found: list[Fault] = []
    open_: dict[tuple[str, str], deque[_Begun]] = {}
    for event in events:
        value = event.value if isinstance(event.value, dict) else {"value": event.value}
        waiting = open_.setdefault((event.f, str(value.get("id"))), deque())
        phase = value.get("phase")
        if phase == "injected":
            if waiting:
                waiting[-1].told.update(value)
        elif phase == "end":
            if waiting:
                found.append(_fault(waiting.popleft(), event.time_ns))
        elif phase == "start":
            waiting.append(_Begun(event, dict(value)))
        else:
            found.append(_fault(_Begun(event, dict(value)), event.time_ns))
    for waiting in open_.values():
        found.extend(_fault(begun, end_ns, is_open=True) for begun in waiting)
    return sorted(found, key=lambda fault: (fault.start_ns, fault.index))


@dataclass(frozen=True, slots=True)
class _Begun:
    """A fault under way, with all that was told of it so far."""

    event: Event
    told: dict[str, Json]


def _fault(begun: _Begun, end_ns: int, *, is_open: bool = False) -> Fault:
    event, told = begun.event, begun.told
    nodes = told.get("nodes") or ()
    rest = {name: part for name, part in told.items() if name not in UNTOLD and part is not None}
    return Fault(
        name=event.f,
        start_ns=event.time_ns,
        end_ns=max(event.time_ns, end_ns),
        nodes=tuple(map(str, nodes)) if isinstance(nodes, list | tuple) else (str(nodes),),
        detail=value_words(rest) if rest else "",
        index=event.index,
        is_open=is_open,
    )


def merged_spans(faults: Iterable[Fault]) -> Sequence[tuple[int, int]]:
    """Return the times in which any fault was under way, as disjoint `[start_ns, end_ns)`."""
    spans: list[tuple[int, int]] = []
    for start, end in sorted((fault.start_ns, fault.end_ns) for fault in faults):
        if start == end:
            continue
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return spans
