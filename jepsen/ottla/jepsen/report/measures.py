"""What a history says in numbers: windows of time, latencies, rates, unseen values, lags.

Pure.  Times are seconds since the run began, latencies nanoseconds.  Everything is one pass over
the operations, since a history of an hour has half a million of them.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ottla.jepsen.history import History, Json, Kind, Operation
from ottla.jepsen.report.scales import TIME_STEPS_S

LOG_OPERATIONS = ("send", "poll", "txn")
PANELS_MAX = 4
"""Kinds of operation with a plot of their own; all others share one more."""
PANEL_SHARE = 0.02
"""Of all operations: what is rarer has no plot of its own."""
WINDOWS_MAX = 110
"""So many that a window is wider than a few pixels, and its tooltip can be hit."""
WINDOW_S_MIN = 0.5


@dataclass(frozen=True, slots=True)
class Windows:
    """The run cut into equal windows; the last one may be cut short."""

    step_s: float
    end_s: float
    count: int

    def of(self, seconds: float) -> int:
        """Return the window a moment falls into."""
        return min(self.count - 1, int(seconds / self.step_s))

    def bounds(self, window: int) -> tuple[float, float]:
        """Return a window's beginning and end in seconds."""
        return window * self.step_s, min(self.end_s, (window + 1) * self.step_s)

    def seconds(self, window: int) -> float:
        """Return a window's length; one cut very short counts as a quarter."""
        start, end = self.bounds(window)
        return max(end - start, self.step_s / 4)


def windows_of(end_s: float) -> Windows:
    """Return windows of a round length for a run."""
    fits = (s for s in TIME_STEPS_S if s >= WINDOW_S_MIN and end_s / s <= WINDOWS_MAX)
    step_s = next(fits, max(TIME_STEPS_S[-1], end_s / WINDOWS_MAX))
    return Windows(step_s, max(end_s, 1e-3), max(1, -int(-end_s // step_s)))


@dataclass(frozen=True, slots=True)
class Group:
    """Operations that share a plot."""

    name: str
    operations: Sequence[Operation]
    is_rare: bool
    """Whether these are all that are too rare for a plot of their own."""


def groups_of(operations: Iterable[Operation]) -> Sequence[Group]:
    """Return operations by name: a log's, the most frequent others, all rare ones together."""
    by_f: dict[str, list[Operation]] = {}
    for operation in operations:
        by_f.setdefault(operation.invoke.f, []).append(operation)
    rank = {f: place for place, f in enumerate(LOG_OPERATIONS)}
    ordered = sorted(by_f, key=lambda f: (rank.get(f, len(rank)), -len(by_f[f])))
    least = PANEL_SHARE * sum(map(len, by_f.values()))
    shown = [f for f in ordered[:PANELS_MAX] if len(by_f[f]) >= least]
    groups = [Group(f, by_f[f], False) for f in shown]
    rest = [f for f in ordered if f not in shown]
    if rest:
        others = (operation for f in rest for operation in by_f[f])
        together = sorted(others, key=lambda operation: operation.invoke.index)
        groups.append(Group(", ".join(rest), together, True))
    return groups


def quantile(ordered: Sequence[int], share: float) -> int:
    """Return the nearest-rank quantile of sorted values."""
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def ok_latencies(operations: Iterable[Operation], windows: Windows) -> Sequence[list[int]]:
    """Return the sorted latencies of ok operations, by the window in which they were invoked."""
    found: list[list[int]] = [[] for _ in range(windows.count)]
    for operation in operations:
        completion = operation.completion
        if completion is not None and completion.kind is Kind.OK:
            began = operation.invoke.time_ns
            found[windows.of(began / 1e9)].append(completion.time_ns - began)
    for latencies in found:
        latencies.sort()
    return found


def counts_by_outcome(
    operations: Iterable[Operation], windows: Windows
) -> Mapping[Kind, Sequence[int]]:
    """Return how many operations ended ok, fail and info in each window.

    One that was never answered is an info in the window in which it was invoked.
    """
    counts = {kind: [0] * windows.count for kind in (Kind.OK, Kind.INFO, Kind.FAIL)}
    for operation in operations:
        ended = operation.completion or operation.invoke
        counts[operation.kind][windows.of(ended.time_ns / 1e9)] += 1
    return counts


@dataclass(slots=True)
class LogValues:
    """What ok operations said of one key."""

    acked_ns: dict[Json, int] = field(default_factory=dict)
    """When each value's send was acknowledged."""
    seen_ns: dict[Json, int] = field(default_factory=dict)
    """When each value was first polled."""
    known: list[tuple[int, int]] = field(default_factory=list)
    """(time in ns, an offset that was then known to exist)."""


def log_values(operations: Iterable[Operation]) -> Mapping[str, LogValues]:
    """Return, by key, what was acknowledged and seen; empty when the workload has no logs."""
    keys: dict[str, LogValues] = {}
    for operation in operations:
        completion = operation.completion
        if completion is None or completion.kind is not Kind.OK:
            continue
        if operation.invoke.f not in LOG_OPERATIONS or not isinstance(completion.value, list):
            continue
        now = completion.time_ns
        for micro in completion.value:
            if micro[0] == "send":
                _take_send(keys.setdefault(micro[1], LogValues()), micro[2], now)
            elif len(micro) > 1:
                for key, records in micro[1].items():
                    if records:
                        _take_poll(keys.setdefault(key, LogValues()), records, now)
    return keys


def _take_send(values: LogValues, what: Json, now_ns: int) -> None:
    offset, value = what if isinstance(what, list) else (None, what)
    values.acked_ns[value] = now_ns
    if offset is not None:
        values.known.append((now_ns, offset))


def _take_poll(values: LogValues, records: Sequence[Sequence[Json]], now_ns: int) -> None:
    seen = values.seen_ns
    for _, value in records:
        if seen.get(value, now_ns) >= now_ns:
            seen[value] = now_ns
    values.known.append((now_ns, records[-1][0]))


def unseen_curve(values: LogValues, windows: Windows) -> Sequence[int]:
    """Return how many acknowledged values were not yet polled at the end of each window."""
    change = [0] * (windows.count + 1)
    for value, acked_ns in values.acked_ns.items():
        seen_ns = values.seen_ns.get(value)
        if seen_ns is None:
            change[windows.of(acked_ns / 1e9)] += 1
        elif seen_ns > acked_ns:
            change[windows.of(acked_ns / 1e9)] += 1
            change[windows.of(seen_ns / 1e9)] -= 1
    unseen, curve = 0, []
    for window in range(windows.count):
        unseen += change[window]
        curve.append(unseen)
    return curve


@dataclass(frozen=True, slots=True)
class Lags:
    """How far behind the log consumers were when they polled."""

    worst_s: Mapping[str, Sequence[float]]
    """By key, the largest lag of a window in seconds; below 0 where nobody polled."""
    all_ms: Sequence[int]
    """Every lag that was measured, sorted, in whole milliseconds."""


def realtime_lags(history: History, logs: Mapping[str, LogValues], windows: Windows) -> Lags:
    """Return by how much each poll was behind: since when its next offset had existed.

    A process' position in a key is what it polled last; it starts again at every assignment that
    does not keep the key.  Final reads begin at the log's start, so they are not looked at.
    """
    frontier = {key: _frontier(values.known) for key, values in logs.items()}
    positions: dict[int, dict[str, int]] = {}
    worst = {key: [-1] * windows.count for key in frontier}
    polled: set[str] = set()
    all_ms: list[int] = []
    for operation in history.operations():
        invoke, completion = operation.invoke, operation.completion
        if completion is None or completion.kind is not Kind.OK or is_final(operation):
            continue
        mine = positions.setdefault(invoke.process, {})
        if invoke.f in ("assign", "subscribe"):
            kept = completion.value if isinstance(completion.value, list) else []
            positions[invoke.process] = {k: mine.get(k, -1) for k in kept if k in frontier}
        elif invoke.f in LOG_OPERATIONS and isinstance(completion.value, list):
            polls = [m[1] for m in completion.value if m[0] == "poll" and len(m) > 1]
            if not polls:
                continue
            at_ns = invoke.time_ns
            window = windows.of(at_ns / 1e9)
            for key, position in mine.items():
                offsets, times_ns = frontier[key]
                next_ = bisect_right(offsets, position)
                lag_ns = at_ns - times_ns[next_] if next_ < len(offsets) else 0
                all_ms.append(lag_ns // 1_000_000 if lag_ns > 0 else 0)
                row = worst[key]
                if lag_ns > row[window]:
                    row[window] = lag_ns
                elif row[window] < 0:
                    row[window] = 0
            for key in operation.extra.get("rewound") or ():
                mine.pop(key, None)
            for records in polls:
                mine.update({key: got[-1][0] for key, got in records.items() if got})
            polled.update(mine)
    all_ms.sort()
    told = {key: [ns / 1e9 for ns in worst[key]] for key in frontier if key in polled}
    return Lags(told, all_ms)


def is_final(operation: Operation) -> bool:
    """Return whether an operation belongs to the final reads."""
    completion = operation.completion
    return bool(
        (operation.invoke.extra and operation.invoke.extra.get("final"))
        or (completion is not None and completion.extra and completion.extra.get("final"))
    )


def _frontier(known: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return the offsets at which the known end of a log rose, and when it did."""
    offsets: list[int] = []
    times: list[int] = []
    for time_ns, offset in sorted(known):
        if not offsets or offset > offsets[-1]:
            offsets.append(offset)
            times.append(time_ns)
    return offsets, times


def final_reads_ns(operations: Sequence[Operation]) -> int | None:
    """Return when the final reads began; None when there were none."""
    for operation in operations:
        if is_final(operation):
            return operation.invoke.time_ns
    return None
