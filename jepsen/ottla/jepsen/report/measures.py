"""Statistics computed from a history: operations by kind and time window, latencies and rates.

The module is pure. Each function needs one pass over the operations, since a run of an hour has
half a million.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.jepsen.history import EventKind, Operation

LOG_OPERATIONS = ("send", "poll", "txn")
GROUPS_MAX = 4
"""Maximum number of kinds of operations that have separate plots. All other kinds share one more
plot."""
GROUP_SHARE_MIN = 0.02
"""Minimum fraction of all operations that a kind of operation needs for a separate plot."""
WINDOWS_MAX = 240
"""Maximum number of time windows in a plot of a run. With more, a window is narrower than three
pixels. With fewer, short stalls are not visible."""
WINDOW_STEPS_S = (0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600)
NOTES_FROM = 1_000_000
"""Lowest process number for events that clients record outside their operations. These events are
not part of the load."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The time of a run divided into equal windows. The last window may be shorter."""

    step_s: float
    count: int

    def of(self, time_ns: int) -> int:
        """Return the index of the time window that contains the time `time_ns`."""
        return min(self.count - 1, int(time_ns / 1e9 / self.step_s))


def windows_of(end_s: float) -> Windows:
    """Return time windows of a round length for a run that lasts `end_s` seconds."""
    step_s = next((s for s in WINDOW_STEPS_S if end_s / s <= WINDOWS_MAX), end_s / WINDOWS_MAX)
    return Windows(step_s, max(1, -int(-end_s // step_s)))


def groups_of(operations: Iterable[Operation]) -> Mapping[str, Sequence[Operation]]:
    """Group a run's operations by the plot that shows them: operations on logs, each of the most
    frequent other kinds, and all rare kinds together."""
    by_f: dict[str, list[Operation]] = {}
    for operation in operations:
        if operation.invoke.process < NOTES_FROM:
            by_f.setdefault(operation.invoke.f, []).append(operation)
    ordered = sorted(by_f, key=lambda f: (f not in LOG_OPERATIONS, -len(by_f[f])))
    least = GROUP_SHARE_MIN * sum(map(len, by_f.values()))
    frequent = [f for f in ordered[:GROUPS_MAX] if len(by_f[f]) >= least]
    groups: dict[str, Sequence[Operation]] = {f: by_f[f] for f in frequent}
    rest = [f for f in ordered if f not in frequent]
    if rest:
        groups[", ".join(rest)] = [operation for f in rest for operation in by_f[f]]
    return groups


def took_ns(operation: Operation) -> int:
    """Return the latency in ns of a client operation that got a response."""
    assert operation.completion is not None
    return operation.completion.time_ns - operation.invoke.time_ns


def quantile(ordered: Sequence[int], share: float) -> int:
    """Return the nearest-rank quantile of sorted values, at a fraction (`share`) from 0 to 1."""
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def ok_latencies(operations: Iterable[Operation], windows: Windows) -> Sequence[list[int]]:
    """Return the sorted latencies in ns of successful operations, by the time window in which they
    started."""
    found: list[list[int]] = [[] for _ in range(windows.count)]
    for operation in operations:
        if operation.kind is EventKind.OK:
            found[windows.of(operation.invoke.time_ns)].append(took_ns(operation))
    for latencies in found:
        latencies.sort()
    return found


def rates(operations: Iterable[Operation], windows: Windows) -> Mapping[EventKind, Sequence[float]]:
    """Return the number of operations per second, by outcome and by the time window in which they
    ended.

    An operation without a response counts as unknown, in the window in which it started.
    """
    found = {kind: [0.0] * windows.count for kind in (EventKind.OK, EventKind.INFO, EventKind.FAIL)}
    for operation in operations:
        ended = operation.completion or operation.invoke
        found[operation.kind][windows.of(ended.time_ns)] += 1 / windows.step_s
    return found


def is_final(operation: Operation) -> bool:
    """Return whether an operation belongs to the final reads, which follow the load of the run."""
    ended = operation.completion or operation.invoke
    return bool(operation.invoke.extra.get("final") or ended.extra.get("final"))


def final_reads_s(operations: Iterable[Operation]) -> float | None:
    """Return the seconds from the start of the run to the start of its final reads, which follow
    the load. Returns None if the run has no final reads."""
    return next((o.invoke.time_ns / 1e9 for o in operations if is_final(o)), None)
