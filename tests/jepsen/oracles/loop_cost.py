"""Cost of one request for the process that serves it: the record, its bounds, and the meter.

The server runs in the caller's trio loop, and the requests come from a thread.  Between two turns
of the loop its thread may use `HOLD_MS_MAX` of CPU time, and the process may grow by
`GROWTH_BYTES_MAX`.  Wall time is only reported: another process on the machine makes it longer.
"""

import ctypes
import gc
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trio
import trio.lowlevel

from ottla.model.limits import KIB, MIB

HOLD_MS_MAX = 100
GROWTH_BYTES_MAX = 64 * MIB

ALL_PAGES_SEEN = "5"
"""Text that resets a process's peak memory to its present size, written to its `clear_refs`."""

_PEAK = re.compile(r"VmHWM:\s+(\d+) kB")
_RESIDENT = re.compile(r"VmRSS:\s+(\d+) kB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of one request for the process that served it."""

    name: str
    """The API or method, its version, and the number that the seed gives the request."""
    request_bytes: int
    outcome: str
    hold_ms: float
    wall_ms: float
    garbage_ms: float
    """CPU time of the loop's longest collection of garbage, which `hold_ms` has in it."""
    growth_bytes: int
    holder: str

    @property
    def own_ms(self) -> float:
        """`hold_ms` without the longest collection of garbage."""
        return self.hold_ms - self.garbage_ms

    @property
    def is_too_much(self) -> bool:
        """True if a bound is broken."""
        return self.hold_ms > HOLD_MS_MAX or self.growth_bytes > GROWTH_BYTES_MAX

    def __str__(self) -> str:
        return (
            f"{self.name} ({self.request_bytes:,} B, {self.outcome}): {self.hold_ms:.1f} ms CPU "
            f"(garbage {self.garbage_ms:.1f}), {self.wall_ms:.1f} ms wall, "
            f"{self.growth_bytes / MIB:.1f} MiB in {self.holder}"
        )


class LoopWatch(trio.abc.Instrument):
    """Measures the CPU time of the loop's thread from one turn to the next."""

    def __init__(self) -> None:
        self.is_idle = True
        """True while the loop waits, and no thread but the asking one works for it."""
        self._limiter = trio.to_thread.current_default_thread_limiter()
        self.hold_ns = 0
        self.wall_ns = 0
        self.garbage_ns = 0
        """The longest collection of garbage in the loop's thread."""
        self.holder = ""
        """The task whose step was the longest."""
        self._step_ns = 0
        self._turn_cpu_ns = self._turn_wall_ns = self._step_start_ns = 0
        self._garbage_start_ns = 0
        self._thread = threading.get_ident()

    def reset(self) -> None:
        """Clear the measurements."""
        self.hold_ns = self.wall_ns = self.garbage_ns = self._step_ns = 0
        self.holder = ""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Measure the loop and the collections of garbage in its thread meanwhile."""
        trio.lowlevel.add_instrument(self)
        gc.callbacks.append(self._on_garbage)
        try:
            yield
        finally:
            gc.callbacks.remove(self._on_garbage)
            trio.lowlevel.remove_instrument(self)

    def _on_garbage(self, phase: str, _: dict[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._garbage_start_ns = time.thread_time_ns()
        else:
            took_ns = time.thread_time_ns() - self._garbage_start_ns
            self.garbage_ns = max(self.garbage_ns, took_ns)

    def after_io_wait(self, timeout: float) -> None:
        """Begin a turn."""
        self.is_idle = False
        self._turn_cpu_ns, self._turn_wall_ns = time.thread_time_ns(), time.perf_counter_ns()

    def before_io_wait(self, timeout: float) -> None:
        """End a turn."""
        self.hold_ns = max(self.hold_ns, time.thread_time_ns() - self._turn_cpu_ns)
        self.wall_ns = max(self.wall_ns, time.perf_counter_ns() - self._turn_wall_ns)
        self.is_idle = timeout > 0 and self._limiter.borrowed_tokens <= 1

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Begin a task's step."""
        self._step_start_ns = time.thread_time_ns()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """End a task's step."""
        took_ns = time.thread_time_ns() - self._step_start_ns
        if took_ns > self._step_ns:
            self._step_ns, self.holder = took_ns, task.name


class Meter:
    """Meter of CPU time and memory between `begin` and `cost`."""

    def __init__(self) -> None:
        self.watch = LoopWatch()
        self._resident_bytes = 0

    def begin(self) -> None:
        """Start measuring, in a process without garbage and without cached memory.

        Objects left by earlier requests are collected once, here, and then frozen: thousands of
        collections over them took as long as the measured work.
        """
        gc.collect()
        gc.freeze()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text(ALL_PAGES_SEEN)
        self._resident_bytes = _memory_bytes(_RESIDENT)
        self.watch.reset()

    def cost(self, *, name: str, request_bytes: int, outcome: str) -> Cost:
        """Return the cost measured since `begin`."""
        return Cost(
            name=name,
            request_bytes=request_bytes,
            outcome=outcome,
            hold_ms=self.watch.hold_ns / 1e6,
            wall_ms=self.watch.wall_ns / 1e6,
            garbage_ms=self.watch.garbage_ns / 1e6,
            growth_bytes=max(0, _memory_bytes(_PEAK) - self._resident_bytes),
            holder=self.watch.holder,
        )


def _memory_bytes(pattern: re.Pattern[str]) -> int:
    found = pattern.search(Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * KIB
