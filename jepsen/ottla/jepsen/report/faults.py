"""Finds the time spans of a run in which a fault was active.

The module is pure. Fault events are paired by name, and by `id` if they have one. A "start" event
opens a span, "injected" adds details, and the next "end" closes the oldest open span. An event
without a phase is a fault without duration. A span that is never closed lasts until the end of the
run.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ottla.jepsen.history import Event, History, Json
from ottla.jepsen.report.words import value_words

SEPARATE = {"phase", "nodes", "id"}
"""Names of the fields in a fault event's value that are not details of the fault."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a run, from its injection until it was healed: `[start_ns, end_ns)`."""

    name: str
    start_ns: int
    end_ns: int
    """End of the fault in ns since the start of the run. Equal to `start_ns` for an instantaneous
    fault."""
    nodes: tuple[str, ...] = ()
    detail: str = ""
    index: int = 0
    """Index of the fault's first event in the history."""
    is_open: bool = False
    """True if the fault was never healed during the run."""

    @property
    def seconds(self) -> float:
        """Duration of the fault in seconds."""
        return (self.end_ns - self.start_ns) / 1e9


def faults_of(history: History) -> Sequence[Fault]:
    """Return a run's faults in the order of their starts."""
    found: list[Fault] = []
    open_: dict[tuple[str, str], deque[tuple[Event, dict[str, Json]]]] = {}
    for event in history.nemesis():
        value = event.value if isinstance(event.value, dict) else {"value": event.value}
        waiting = open_.setdefault((event.f, str(value.get("id"))), deque())
        phase = value.get("phase")
        if phase == "start":
            waiting.append((event, dict(value)))
        elif phase == "injected":
            if waiting:
                waiting[-1][1].update(value)
        elif phase == "end":
            if waiting:
                found.append(_fault(*waiting.popleft(), event.time_ns))
        else:
            found.append(_fault(event, value, event.time_ns))
    for waiting in open_.values():
        found.extend(_fault(*one, history.end_ns, is_open=True) for one in waiting)
    return sorted(found, key=lambda fault: (fault.start_ns, fault.index))


def _fault(event: Event, value: dict[str, Json], end_ns: int, *, is_open: bool = False) -> Fault:
    nodes = value.get("nodes") or ()
    rest = {name: part for name, part in value.items() if name not in SEPARATE and part is not None}
    return Fault(
        name=event.f,
        start_ns=event.time_ns,
        end_ns=max(event.time_ns, end_ns),
        nodes=tuple(map(str, nodes)) if isinstance(nodes, list | tuple) else (str(nodes),),
        detail=value_words(rest) if rest else "",
        index=event.index,
        is_open=is_open,
    )


def merged_spans(spans: Iterable[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    """Return the union of half-open time spans as disjoint spans. Empty spans are left out."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif start < end:
            merged.append((start, end))
    return merged
