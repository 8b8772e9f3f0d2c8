"""What waits to be sent on, bounded in pushes and bytes, and when to try again.

Pure.  When there is too much, the oldest goes: somebody who looks at metrics after an outage wants
the newest.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum

from ottla.model.values import frozen
from ottla.telemetry.exporter import LabelledPush

BACK_OFF_MS_FIRST = 500
"""Wait after the first failure, doubled with each that follows."""
BACK_OFF_MS_MAX = 10_000
"""A collector that is back gets the first batch within this."""
RETRY_AFTER_MS_MAX = 300_000
"""The longest wait a collector is granted when it asks for one."""


class PushQueue:
    """Pushes in the order they came; owns them and what it counts."""

    def __init__(self, *, pushes_max: int, bytes_max: int) -> None:
        self._pushes_max = pushes_max
        self._bytes_max = bytes_max
        self._pushes: deque[LabelledPush] = deque()
        self.bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._pushes)

    def offer(self, pushes: Iterable[LabelledPush]) -> None:
        """Put pushes at the end; what is then too much goes from the front."""
        for push in pushes:
            self._pushes.append(push)
            self.bytes += len(push.otlp)
        self._trim()

    def take(self, *, pushes_max: int, bytes_max: int) -> list[LabelledPush]:
        """Take the next batch from the front: one push at least, when there is one."""
        batch: list[LabelledPush] = []
        batch_bytes = 0
        while self._pushes and len(batch) < pushes_max:
            next_bytes = len(self._pushes[0].otlp)
            if batch and batch_bytes + next_bytes > bytes_max:
                break
            batch.append(self._pushes.popleft())
            batch_bytes += next_bytes
        self.bytes -= batch_bytes
        return batch

    def give_back(self, batch: Sequence[LabelledPush]) -> None:
        """Put a batch that could not be sent in front again: now it is the oldest."""
        self._pushes.extendleft(reversed(batch))
        self.bytes += sum(len(push.otlp) for push in batch)
        self._trim()

    def _trim(self) -> None:
        while len(self._pushes) > self._pushes_max or self.bytes > self._bytes_max:
            self.bytes -= len(self._pushes.popleft().otlp)
            self.dropped += 1


class BackOff:
    """How long to wait after one failure more."""

    def __init__(self) -> None:
        self._failures = 0

    def reset(self) -> None:
        """Begin again: something went through."""
        self._failures = 0

    def next_ms(self, chance: float, asked_ms: int | None = None) -> int:
        """Return the wait after a failure: doubled each time, from half of it to all by chance.

        `chance` lies in `[0, 1)`.  A receiver that asks for a wait gets at least that.
        """
        whole_ms = min(BACK_OFF_MS_FIRST << min(self._failures, 10), BACK_OFF_MS_MAX)
        self._failures += 1
        wait_ms = int(whole_ms * (0.5 + chance / 2))
        return max(wait_ms, min(asked_ms or 0, RETRY_AFTER_MS_MAX))


class ExportVerdict(Enum):
    """What became of a batch."""

    SENT = "sent"
    RETRY = "retry"
    """Not taken now; the same batch may be taken later."""
    REFUSED = "refused"
    """Not taken, and never will be."""


@frozen(kw_only=True)
class ExportOutcome:
    """What a receiver answered."""

    verdict: ExportVerdict
    why: str = ""
    rejected_points: int = 0
    """Of a batch that was taken, what the receiver left out."""
    retry_after_ms: int | None = None
    """How long the receiver wants to be left alone."""
