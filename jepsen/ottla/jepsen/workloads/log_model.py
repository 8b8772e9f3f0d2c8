"""What a generator knows of logs: how far they were written, and how far they were read.

Pure.  It learns from completions only; it is no judge.
"""

from collections.abc import Iterable, Iterator, Mapping

from ottla.jepsen.history import EventKind, Json
from ottla.jepsen.workloads.load import Completion, Op


class OffsetModel:
    """The highest offsets anybody was told of, by key."""

    def __init__(self) -> None:
        self._sent: dict[str, int] = {}
        self._read: dict[str, int] = {}

    def highest(self) -> Mapping[str, int]:
        """Return, for each key, the highest offset that anybody was told of."""
        return {
            key: max(self._sent.get(key, -1), self._read.get(key, -1))
            for key in self._sent.keys() | self._read.keys()
        }

    def unseen(self) -> list[str]:
        """Return the keys of which something was sent that nobody has read."""
        return sorted(key for key, sent in self._sent.items() if sent > self._read.get(key, -1))

    def on_completion(self, op: Op, done: Completion) -> None:
        """Learn what was sent, and what was read."""
        for key, offset in sent_of(op, done):
            self._sent[key] = max(offset, self._sent.get(key, -1))
        for key, offset in read_of(op, done):
            self._read[key] = max(offset, self._read.get(key, -1))


def sent_of(op: Op, done: Completion) -> Iterator[tuple[str, int]]:
    """Yield key and offset of each send that is known to be in the log."""
    for told in _parts(op, done, "send"):
        if done.kind is EventKind.OK and isinstance(told[2], list) and told[2][0] is not None:
            yield told[1], told[2][0]


def read_of(op: Op, done: Completion) -> Iterator[tuple[str, int]]:
    """Yield key and last offset of what an operation has read, even where it failed."""
    for told in _parts(op, done, "poll"):
        for key, records in told[1].items() if len(told) > 1 else ():
            if records:
                yield key, records[-1][0]


def _parts(op: Op, done: Completion, name: str) -> Iterable[Json]:
    if op.f not in ("send", "poll", "txn") or done.value is None:
        return ()
    return [part for part in done.value if part[0] == name]
