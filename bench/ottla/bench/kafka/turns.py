"""Rounds of a comparison, in which servers are measured alternately until a deadline. Also reads
the machine's load average."""

import os
import time
from collections.abc import Callable, Mapping, Sequence

from ottla.bench.kafka.comparison import SERVERS, Measured, take_rounds
from ottla.bench.load import Progress
from ottla.model.errors import ErrorCode, RefusedError


class MeasurementRounds:
    """Rounds in which benchmarks run alternately on several servers, with progress reports and a
    deadline."""

    def __init__(self, timeout_s: float, progress: Progress) -> None:
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._progress = progress
        self._done = 0

    def take(
        self,
        rows: Sequence[str],
        count: int,
        measure: Callable[[str, str], Mapping[str, float]],
        *,
        servers: Sequence[str] = SERVERS,
    ) -> list[Measured]:
        """Run each benchmark `count` times, alternately on all servers. Returns the measured values
        of the rounds that are complete before the deadline."""

        def counted(row: str, server: str) -> Mapping[str, float]:
            found = measure(row, server)
            self._done += 1
            self._progress(self._done)
            return found

        return take_rounds(rows, count, measure=counted, is_late=self._is_late, servers=servers)

    def require(self, rounds: Sequence[Measured], cure: str, *, kind: str = "round") -> None:
        """Raise RefusedError with the advice `cure` if no round of measurements was complete in
        time."""
        if not rounds:
            reason = f"no {kind} was complete in {self._timeout_s:g} s; {cure}"
            raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, reason)

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline


def load_average() -> float:
    """Return the machine's load average of the last minute."""
    return round(os.getloadavg()[0], 2)
