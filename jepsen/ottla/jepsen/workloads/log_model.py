"""A generator's model of its logs: the highest offsets written and read so far.

The module is pure. The model is updated from completions only. It does not judge whether they are
correct.
"""

from collections.abc import Iterable, Iterator, Mapping

from ottla.jepsen.history import EventKind, Json
from ottla.jepsen.workloads.load import Completion, Op


class OffsetModel:
    """The highest offsets that any client has received, by key (partition)."""

    def __init__(self) -> None:
        self._sent: dict[str, int] = {}
        self._read: dict[str, int] = {}

    def highest(self) -> Mapping[str, int]:
        """Return, by key (partition), the highest offset that any client has received."""
        return {
            key: max(self._sent.get(key, -1), self._read.get(key, -1))
            for key in self._sent.keys() | self._read.keys()
        }

    def unseen(self) -> list[str]:
        """Return the keys (partitions) with sent records that no client has read."""
        return sorted(key for key, sent in self._sent.items() if sent > self._read.get(key, -1))

    def on_completion(self, op: Op, done: Completion) -> None:
        """Update the model with the offsets that a completed operation has sent or read."""
        for key, offset in sent_of(op, done):
            self._sent[key] = max(offset, self._sent.get(key, -1))
        for key, offset in read_of(op, done):
            self._read[key] = max(offset, self._read.get(key, -1))


def sent_of(op: Op, done: Completion) -> Iterator[tuple[str, int]]:
    """Yield (key, offset) of each record that is known to be in its log after a completed send."""
    for step in _parts(op, done, "send"):
        if done.kind is EventKind.OK and isinstance(step[2], list) and step[2][0] is not None:
            yield step[1], step[2][0]


def read_of(op: Op, done: Completion) -> Iterator[tuple[str, int]]:
    """Yield (key, offset) of the last record that a completed operation has read of each key
    (partition). A failed operation may also have read records."""
    for step in _parts(op, done, "poll"):
        for key, records in step[1].items() if len(step) > 1 else ():
            if records:
                yield key, records[-1][0]


def _parts(op: Op, done: Completion, name: str) -> Iterable[Json]:
    if op.f not in ("send", "poll", "txn") or done.value is None:
        return ()
    return [part for part in done.value if part[0] == name]
