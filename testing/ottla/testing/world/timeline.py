"""The timeline of a simulated run: events of instances, brokers, stores and the scenario."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from itertools import pairwise

import trio

from ottla.testing.world.timeline_event import NOTABLE_KINDS, TimelineEvent, printable
from ottla.testing.world.timeline_page import page

__all__ = ["TIMELINE", "Timeline", "TimelineEvent", "excerpt", "lines_of", "printable"]

EVENTS_MAX = 200_000
"""Maximum number of events that a timeline keeps. The oldest events are dropped first."""
TEXT_COLUMNS_MAX = 110
"""Maximum length of an event's text in one line of a timeline, in characters."""
LINES_DEFAULT = 16
"""Default number of events that an excerpt of the timeline shows."""

_WEIGHTS: Mapping[str, float] = {
    "mark": 8.0,
    "store": 20.0,
    "note": 2.0,
    "produce": 1.0,
}
_CHANGING_APIS = frozenset(
    {
        "EndTxn", "InitProducerId", "JoinGroup", "LeaveGroup", "OffsetCommit", "Produce",
        "SyncGroup", "TxnOffsetCommit",
    }
)  # fmt: skip
"""APIs whose requests change data. The text of a request or answer event starts with the name of
its API."""
WEIGHT_MIN = 0.2
"""Weight (see `_weight`) from which an event is important enough for an excerpt of the timeline.
Other events are shown only if the excerpt would otherwise have fewer than `EVENTS_MIN`."""
EVENTS_MIN = 6
"""Minimum number of events in an excerpt of the timeline. Unimportant events are included if
necessary."""


class Timeline:
    """Events of a simulated run in order of their virtual time."""

    def __init__(self, *, wall_ms: int = 0) -> None:
        self.wall_ms = wall_ms
        """Simulated wall clock in ms since 1970 at the start of the run."""
        self.now_s: Callable[[], float] = trio.current_time
        """Function that returns the virtual seconds since the start of the run."""
        self._events: deque[TimelineEvent] = deque(maxlen=EVENTS_MAX)
        self._added_count = 0

    def __len__(self) -> int:
        """Return the number of events that the timeline has."""
        return len(self._events)

    def __iter__(self) -> Iterator[TimelineEvent]:
        """Iterate over the events, oldest first."""
        return iter(self._events)

    @property
    def dropped_count(self) -> int:
        """Number of old events that the timeline dropped to bound its memory."""
        return self._added_count - len(self._events)

    def add(self, event: TimelineEvent) -> None:
        """Append an event. Its time must not be before the time of the last event."""
        self._added_count += 1
        self._events.append(event)

    def last(self, count: int) -> list[TimelineEvent]:
        """Return the newest events of the timeline, in order of time."""
        start = max(0, len(self._events) - count)
        return [self._events[at] for at in range(start, len(self._events))]

    def as_text(
        self,
        *,
        around: Iterable[TimelineEvent] | float | None = None,
        lines_max: int | None = None,
    ) -> str:
        """Return the timeline as text, one line an event.

        `around` selects an excerpt: the most relevant events near a virtual time in seconds, or
        near the given events, which get an arrow. Without it, the last `lines_max` events are
        shown.
        """
        if around is None:
            shown = list(self) if lines_max is None else self.last(lines_max)
            return "\n".join(lines_of(shown))
        subjects, moments = _subjects(around)
        limit = LINES_DEFAULT if lines_max is None else lines_max
        return "\n".join(excerpt(self._events, subjects, moments, limit))

    def as_html(self, title: str = "Timeline of a simulated run") -> str:
        """Return a page with one lane per instance, broker and store. The page has no scripts and
        no external resources."""
        return page(list(self), title=title, dropped_count=self.dropped_count)


def _subjects(
    around: Iterable[TimelineEvent] | float,
) -> tuple[Sequence[TimelineEvent], Sequence[float]]:
    if isinstance(around, int | float):
        return (), (float(around),)
    subjects = tuple(around)
    return subjects, tuple(event.at_s for event in subjects)


def excerpt(
    events: Iterable[TimelineEvent],
    subjects: Sequence[TimelineEvent],
    moments: Sequence[float],
    lines_max: int,
) -> list[str]:
    """Return the lines of the most relevant events near some moments, in order of time.

    The most relevant events are the subjects, then faults and ends of instances, then commits and
    marks. In each group, the nearest events are selected. A line with dots marks omitted events. It
    counts as a line of the excerpt.
    """
    everything = list(events)
    wanted = {id(event) for event in subjects}
    concerned = {event.where for event in subjects}
    instants = sorted(moments)
    weights = [_weight(event, wanted, concerned, instants) for event in everything]
    ranked = sorted(range(len(everything)), key=lambda at: (-weights[at], at))
    telling_count = sum(weight >= WEIGHT_MIN for weight in weights)
    count = max(min(lines_max, max(telling_count, EVENTS_MIN)), 1)
    chosen = sorted(ranked[:count])
    while len(chosen) > 1 and len(chosen) + _gap_count(chosen) > lines_max:
        count -= 1
        chosen = sorted(ranked[:count])
    lines: list[str] = []
    shown = lines_of([everything[at] for at in chosen], wanted)
    for before, at, line in zip([*chosen[:1], *chosen], chosen, shown, strict=False):
        left_out = at - before - 1
        if left_out > 0:
            lines.append(f"   {'…':>9}  ({left_out} other event{'s' if left_out > 1 else ''})")
        lines.append(line)
    return lines


def _gap_count(chosen: Sequence[int]) -> int:
    return sum(after - before > 1 for before, after in pairwise(chosen))


def _weight(
    event: TimelineEvent, wanted: set[int], concerned: set[str], instants: Sequence[float]
) -> float:
    """Return the weight of an event: an excerpt shows the events with the largest weights. The
    weight depends on the event's kind, and decreases with the time from the nearest of `instants`.
    Faults and ends between the first and the last instant count as near."""
    if id(event) in wanted:
        return 1_000.0
    weight = 10.0 if event.kind in NOTABLE_KINDS else _WEIGHTS.get(event.kind, 0.5)
    if event.kind in ("request", "answer"):
        weight = 2.0 if event.text.partition(" ")[0] in _CHANGING_APIS else 0.2
    if event.where in concerned:
        weight *= 2.0
    if not instants:
        return weight
    nearest_s = min(abs(event.at_s - at) for at in instants)
    if event.kind in NOTABLE_KINDS and instants[0] <= event.at_s <= instants[-1]:
        nearest_s = 0.0
    return weight / (1.0 + nearest_s)


def lines_of(events: Sequence[TimelineEvent], marked: Iterable[int] = ()) -> list[str]:
    """Return one line per event: time in virtual seconds, place, kind and text. Events whose `id`
    is in `marked` get an arrow."""
    arrows = frozenset(marked)
    width = max((len(event.where) for event in events), default=0)
    kind_width = max((len(event.kind) for event in events), default=0)
    return [
        f"{' →' if id(event) in arrows else '  '} {event.at_s:9.3f}  "
        f"{printable(event.where):<{width}}  {printable(event.kind):<{kind_width}}  "
        f"{printable(event.text, TEXT_COLUMNS_MAX)}".rstrip()
        for event in events
    ]


TIMELINE: ContextVar[Timeline | None] = ContextVar("timeline", default=None)
"""Context variable with the timeline (the list of events) of the running simulated world. Checkers
use it for their messages."""
