"""The queue of an exporter, limited in pushes and bytes, and the times of its retries.

Pure. A full queue drops the oldest push, because after an outage the newest metrics matter most.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum

from ottla.model.values import frozen
from ottla.telemetry.clients.exporter import LabelledPush

BACK_OFF_MS_FIRST = 500
"""Delay in ms before an exporter's first retry. Each further failure doubles the delay."""
BACK_OFF_MS_MAX = 10_000
"""Maximum delay in ms between an exporter's retries. After a collector is reachable again, it
receives a batch within this time."""
RETRY_AFTER_MS_MAX = 300_000
"""Maximum delay in ms that a collector may request before an exporter's retry. Longer requested
delays are reduced to this value."""


class PushQueue:
    """Queue of an exporter: pushes in order of arrival, and their counters."""

    def __init__(self, *, pushes_max: int, bytes_max: int) -> None:
        self._pushes_max = pushes_max
        self._bytes_max = bytes_max
        self._pushes: deque[LabelledPush] = deque()
        self.bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._pushes)

    def offer(self, pushes: Iterable[LabelledPush]) -> None:
        """Add pushes at the end of the queue. If the queue exceeds its bounds, pushes at the front
        are dropped."""
        for push in pushes:
            self._pushes.append(push)
            self.bytes += len(push.otlp)
        self._trim()

    def take(self, *, pushes_max: int, bytes_max: int) -> list[LabelledPush]:
        """Remove and return the next batch of pushes from the front of the queue. The batch has at
        least one push if the queue is not empty."""
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
        """Return a batch of unsent pushes to the front of the queue."""
        self._pushes.extendleft(reversed(batch))
        self.bytes += sum(len(push.otlp) for push in batch)
        self._trim()

    def _trim(self) -> None:
        while len(self._pushes) > self._pushes_max or self.bytes > self._bytes_max:
            self.bytes -= len(self._pushes.popleft().otlp)
            self.dropped += 1


class BackOff:
    """Delays between an exporter's retries, which grow with each consecutive failure."""

    def __init__(self) -> None:
        self._failures = 0

    def reset(self) -> None:
        """Restart with the first delay, because sending a batch has succeeded."""
        self._failures = 0

    def next_ms(self, chance: float, asked_ms: int | None = None) -> int:
        """Return the delay in ms before the retry after a failure. Each failure doubles the delay,
        which is then multiplied by a random factor from 0.5 to 1.

        `chance` is a random number in `[0, 1)`. If the receiver requests a delay (`asked_ms`), the
        result is at least that delay.
        """
        whole_ms = min(BACK_OFF_MS_FIRST << min(self._failures, 10), BACK_OFF_MS_MAX)
        self._failures += 1
        wait_ms = int(whole_ms * (0.5 + chance / 2))
        return max(wait_ms, min(asked_ms or 0, RETRY_AFTER_MS_MAX))


class ExportVerdict(Enum):
    """Verdict on a batch of metrics: sent, to be retried, or refused."""

    SENT = "sent"
    RETRY = "retry"
    """Verdict that the receiver did not accept a batch of metrics now, but may accept it later."""
    REFUSED = "refused"
    """Verdict that the receiver has permanently refused a batch of metrics."""


@frozen(kw_only=True)
class ExportOutcome:
    """Outcome of sending a batch of metrics, with details of the receiver's response."""

    verdict: ExportVerdict
    why: str = ""
    rejected_points: int = 0
    """Number of data points in an accepted batch that the receiver rejected."""
    retry_after_ms: int | None = None
    """Delay in ms that the receiver requests before a retry, or None if it requests no delay."""
