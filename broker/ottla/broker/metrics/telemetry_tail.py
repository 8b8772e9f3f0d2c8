"""What clients pushed last, kept for whoever looks on.  Pure.

A ring bounded in pushes and in bytes: what is new drives out what is oldest, and nobody waits.
Every push has a number, from 1; a reader asks for what came from a number on and is told how many
of these it missed.  Numbers begin again with the process.
"""

from collections import deque
from collections.abc import Container, Sequence
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from ottla.telemetry.client_labels import ClientLabels
from ottla.telemetry.exporter import LabelledPush

PUSHES_MAX = 1_024
BYTES_MAX = 4_194_304
"""With less, ten clients of a second's interval are missed by a reader that blinks; with more, a
broker spends memory on what nobody looks at."""
FROM_NOW = -1
FROM_OLDEST = 0


class Tailed(NamedTuple):
    """What a reader gets: the number to ask with next, how many it missed, pushes in order."""

    cursor: int
    missed: int
    pushes: list[tuple[ClientLabels, LabelledPush]]


class TelemetryTail:
    """The ring: one more Sink to whoever takes pushes in."""

    def __init__(self, *, pushes_max: int = PUSHES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._pushes_max = pushes_max
        self._bytes_max = bytes_max
        self._kept: deque[tuple[ClientLabels, LabelledPush]] = deque()
        self._kept_bytes = 0
        self._next = 1

    def offer(self, pushes: Sequence[LabelledPush]) -> None:
        """Keep what clients pushed; what nodes say of themselves is passed over."""
        for push in pushes:
            if push.labels is None:
                continue
            self._kept.append((push.labels, push))
            self._kept_bytes += len(push.otlp)
            self._next += 1
            while self._kept_bytes > self._bytes_max or len(self._kept) > self._pushes_max:
                self._kept_bytes -= len(self._kept.popleft()[1].otlp)

    def since(self, cursor: int, *, names: Container[str | UUID] | None, bytes_max: int) -> Tailed:
        """Return pushes from a number on: all of them, or those of clients called so.

        They are no more than `bytes_max` bytes, or one.  A number that was never given (the reader
        knew another life of this process) begins with the oldest.
        """
        if cursor == FROM_NOW:
            return Tailed(self._next, 0, [])
        oldest = self._next - len(self._kept)
        begin = cursor if oldest <= cursor <= self._next else oldest
        missed = begin - cursor if FROM_OLDEST < cursor < begin else 0
        found: list[tuple[ClientLabels, LabelledPush]] = []
        found_bytes = 0
        at = begin
        for labels, push in islice(self._kept, begin - oldest, None):
            if names is None or labels.client_id in names or labels.client_instance_id in names:
                found_bytes += len(push.otlp)
                if found and found_bytes > bytes_max:
                    break
                found.append((labels, push))
            at += 1
        return Tailed(at, missed, found)
