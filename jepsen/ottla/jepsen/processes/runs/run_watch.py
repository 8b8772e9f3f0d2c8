"""Detects anomalies during a run, for the run's progress line.

The module is pure, and cheap: a few look-ups for each event. Only the checkers decide the verdict.
This module shows early that the verdict will be bad.
"""

from collections import Counter
from collections.abc import Iterator

from ottla.jepsen.history import Event, EventKind, Json


class RunWatch:
    """Counters of a running workload's events and anomalies."""

    def __init__(self) -> None:
        self.kinds: Counter[EventKind] = Counter()
        """Number of client events of the workload, by kind."""
        self.anomalies: Counter[str] = Counter()
        self._values: dict[tuple[str, int], Json] = {}
        self._offsets: dict[tuple[str, Json], int] = {}
        self._producers: set[tuple[int, int]] = set()

    @property
    def operation_count(self) -> int:
        """Number of operations of the workload that have ended."""
        return self.kinds.total() - self.kinds[EventKind.INVOKE]

    @property
    def anomaly_count(self) -> int:
        """Number of anomalies of all kinds found so far in the workload's events."""
        return self.anomalies.total()

    def take(self, event: Event) -> None:
        """Count one client event of the workload, and detect the anomalies that are evident from
        it."""
        self.kinds[event.kind] += 1
        if event.kind is not EventKind.OK:
            return
        if event.f in ("send", "poll", "txn"):
            for key, offset, value in _records(event.value):
                self._place(key, offset, value)
        elif event.f == "init" and isinstance(event.value, list):
            producer = (event.value[0], event.value[1])
            if producer in self._producers:
                self.anomalies["producer id given twice"] += 1
            self._producers.add(producer)

    def _place(self, key: str, offset: int, value: Json) -> None:
        if self._values.setdefault((key, offset), value) != value:
            self.anomalies["inconsistent-offsets"] += 1
        if self._offsets.setdefault((key, value), offset) != offset:
            self.anomalies["duplicate"] += 1


def _records(micro_operations: Json) -> Iterator[tuple[str, int, Json]]:
    """Yield (key, offset, value) of each record that was sent or polled and whose offset is
    known."""
    for micro in micro_operations if isinstance(micro_operations, list) else ():
        if micro[0] == "send" and isinstance(micro[2], list):
            offset, value = micro[2]
            if offset is not None:
                yield micro[1], offset, value
        elif micro[0] == "poll" and len(micro) > 1:
            for key, records in micro[1].items():
                for offset, value in records:
                    yield key, offset, value
