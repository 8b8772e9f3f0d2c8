"""Stores the latest metric pushes of clients, for operators who watch them. Pure.

The pushes are in a ring buffer with a maximum number of pushes and of bytes. New pushes replace the
oldest, and never wait for a reader. The pushes are numbered from 1. A reader requests all pushes
from a number on, and also receives the number of pushes that it missed. The numbers start again at
1 when the process restarts.
"""

from collections import deque
from collections.abc import Container, Sequence
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from ottla.telemetry.clients.client_labels import ClientLabels
from ottla.telemetry.clients.exporter import LabelledPush

PUSHES_MAX = 1_024
BYTES_MAX = 4_194_304
"""Maximum total bytes of the stored metric pushes of clients. With a smaller value, a reader of ten
clients that push every second misses pushes after a short pause. A larger value spends memory on
pushes that are never read."""
FROM_NOW = -1
FROM_OLDEST = 0


class TailPage(NamedTuple):
    """Clients' metric pushes for a reader, in order, with the number to request next and the count
    of pushes that the reader missed."""

    cursor: int
    missed: int
    pushes: list[tuple[ClientLabels, LabelledPush]]


class TelemetryTail:
    """Ring buffer of clients' metric pushes; implements `Sink`."""

    def __init__(self, *, pushes_max: int = PUSHES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._pushes_max = pushes_max
        self._bytes_max = bytes_max
        self._kept: deque[tuple[ClientLabels, LabelledPush]] = deque()
        self._kept_bytes = 0
        self._next = 1

    def offer(self, pushes: Sequence[LabelledPush]) -> None:
        """Store metric pushes from clients in the ring buffer. Metrics of nodes are ignored."""
        for push in pushes:
            if push.labels is None:
                continue
            self._kept.append((push.labels, push))
            self._kept_bytes += len(push.otlp)
            self._next += 1
            while self._kept_bytes > self._bytes_max or len(self._kept) > self._pushes_max:
                self._kept_bytes -= len(self._kept.popleft()[1].otlp)

    def since(
        self, cursor: int, *, names: Container[str | UUID] | None, bytes_max: int
    ) -> TailPage:
        """Return the stored metric pushes from number `cursor` on. `names` selects the clients;
        None selects all of them.

        The pushes have at most `bytes_max` bytes in total, but the first push is always included.
        If the number is unknown, because it is from before a restart of this process, the page
        begins with the oldest stored push.
        """
        if cursor == FROM_NOW:
            return TailPage(self._next, 0, [])
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
        return TailPage(at, missed, found)
