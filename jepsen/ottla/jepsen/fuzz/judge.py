"""Judges fuzzing inputs one by one: reports unexpected exceptions, too much time and too much
memory."""

import gc
import time
import traceback
import tracemalloc
from dataclasses import dataclass, field
from hashlib import blake2b

from ottla.jepsen.fuzz.target import CPU_MS_MAX, FuzzTarget

MEASURED_EVERY = 16
"""Number of fuzzing inputs per input whose memory allocations are measured. The measurement makes a
run several times slower."""

TRIES = 3
"""Number of times that the cost of a fuzzing input is measured. Only the lowest value counts,
because the first measurement includes imports and caches."""


@dataclass(frozen=True, slots=True)
class FuzzFinding:
    """One fuzzing input that its target handled incorrectly."""

    target: str
    kind: str
    """Kind of error that the input caused: `escape` (an unexpected exception), `slow` or
    `memory`."""
    where: str
    """Code location at which the error occurred. Errors at the same location count as one."""
    what: str
    data: bytes

    @property
    def file_name(self) -> str:
        """Name of the file in which the input is kept."""
        where = blake2b(f"{self.kind} {self.where}".encode(), digest_size=4).hexdigest()
        return f"{self.target}-{self.kind}-{where}"


@dataclass(slots=True)
class Judge:
    """Judge of the inputs of one fuzzing target. It runs the target on each input. For each code
    location with an error, it keeps the shortest input that shows the error."""

    target: FuzzTarget
    input_count: int = 0
    refused_count: int = 0
    measured_count: int = 0
    slowest_ms: float = 0.0
    findings: dict[tuple[str, str], FuzzFinding] = field(default_factory=dict)

    def take(self, data: bytes, *, is_measured: bool | None = None) -> FuzzFinding | None:
        """Run the target on one input. Returns a `FuzzFinding` if the target handled the input
        incorrectly, otherwise None.

        `is_measured` decides whether memory allocations are measured. If it is None, they are
        measured for one input of MEASURED_EVERY.
        """
        if is_measured is None:
            is_measured = self.input_count % MEASURED_EVERY == 0
        self.input_count += 1
        found = self._measured(data) if is_measured else self._timed(data)
        if found is not None:
            place = (found.kind, found.where)
            known = self.findings.get(place)
            if known is None or len(data) < len(known.data):
                self.findings[place] = found
        return found

    def _timed(self, data: bytes) -> FuzzFinding | None:
        best_ms = CPU_MS_MAX + 1
        for attempt in range(TRIES):
            started = time.thread_time()
            escaped = self._read(data, is_first=attempt == 0)
            best_ms = min(best_ms, (time.thread_time() - started) * 1000)
            if escaped is not None:
                return self._escape(data, escaped)
            if best_ms <= CPU_MS_MAX:
                self.slowest_ms = max(self.slowest_ms, best_ms)
                return None
            gc.collect()  # otherwise garbage of earlier inputs would be counted here
        self.slowest_ms = max(self.slowest_ms, best_ms)
        return self._costly(data, "slow", f"more than {CPU_MS_MAX:.0f} ms")

    def _measured(self, data: bytes) -> FuzzFinding | None:
        self.measured_count += 1
        peak_bytes = 0
        for attempt in range(TRIES):
            tracemalloc.start()
            try:
                escaped = self._read(data, is_first=attempt == 0)
                _, peak_bytes = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            if escaped is not None:
                return self._escape(data, escaped)
            if peak_bytes <= self.target.allocation_max(data):
                return None
        return self._costly(data, "memory", f"{peak_bytes} bytes for {len(data)}")

    def _read(self, data: bytes, *, is_first: bool) -> Exception | None:
        try:
            self.target.check(data)
        except self.target.refusals:
            self.refused_count += is_first
        except Exception as escaped:
            return escaped
        return None

    def _costly(self, data: bytes, kind: str, what: str) -> FuzzFinding:
        name = self.target.name_of(data)
        return FuzzFinding(self.target.name, kind, name, f"{name} {what}".strip(), data)

    def _escape(self, data: bytes, escaped: Exception) -> FuzzFinding:
        frames = traceback.extract_tb(escaped.__traceback__)
        ours = [one for one in frames if "/ottla/" in one.filename and one.filename != __file__]
        last = (ours or frames)[-1]
        where = f"{type(escaped).__name__} at {last.filename.rpartition('/')[2]}:{last.lineno}"
        what = f"{self.target.name_of(data)} {where} ({last.name}): {escaped}".strip()
        return FuzzFinding(self.target.name, "escape", where, what, data)
