"""From what was measured to pixels, and the ticks of an axis.

Pure.  A scale keeps its promise at both ends: `low` is at `start`, `high` at `end`, in pixels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.jepsen.report.words import count_words, duration_words

TIME_STEPS_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis; `label` is empty for a minor one."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Linear:
    """Equal differences have equal lengths."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


@dataclass(frozen=True, slots=True)
class Logarithmic:
    """Equal ratios have equal lengths; what lies below `low` is drawn at `low`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)


def seconds_ticks(low_s: float, high_s: float, about: int = 10) -> Sequence[Tick]:
    """Return ticks for a span of run time: "30 s", from two minutes on "2:30"."""
    step = next((s for s in TIME_STEPS_S if (high_s - low_s) / s <= about), TIME_STEPS_S[-1])
    first = math.ceil(low_s / step - 1e-9)
    ticks = []
    for i in range(first, math.floor(high_s / step + 1e-9) + 1):
        at = i * step
        ticks.append(Tick(at, clock_words(at) if high_s > 120 else f"{at:g} s"))
    return ticks


def clock_words(seconds: float) -> str:
    """Return a time of a run as m:ss or h:mm:ss."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours}:{minutes:02}:{whole % 60:02}"
    return f"{minutes}:{whole % 60:02}"


def linear_ticks(low: float, high: float, about: int = 5) -> Sequence[Tick]:
    """Return round numbers from low to high."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [Tick(i * step, count_words(i * step)) for i in range(first, last + 1)]


def rounded_up(value: float) -> float:
    """Return the next number of the form 1, 1.5, 2, 3, 4, 5, 6, 8 × 10^n: an axis' upper end."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    steps = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
    return float(next(power * m for m in steps if power * m >= value * (1 - 1e-9)))


def duration_bounds(low_ns: float, high_ns: float) -> tuple[float, float]:
    """Return the bounds of a logarithmic axis of durations, in ns: 1, 2 or 5 × 10^n."""
    low = max(1_000.0, low_ns)
    high = max(high_ns, low * 10)
    power = 10.0 ** math.floor(math.log10(low))
    bottom = max(m * power for m in (1, 2, 5) if m * power <= low * (1 + 1e-9))
    power = 10.0 ** math.floor(math.log10(high))
    top = min(m * power for m in (1, 2, 5, 10) if m * power >= high * (1 - 1e-9))
    return bottom, top


def duration_ticks(low_ns: float, high_ns: float, about: int = 7) -> Sequence[Tick]:
    """Return ticks of a logarithmic axis of durations: decades, and 2 and 5 where there is room."""
    decades = math.log10(high_ns / low_ns)
    every = math.ceil(decades / about)
    ticks = []
    power = 10.0 ** math.floor(math.log10(low_ns))
    while power <= high_ns:
        for m in (1, 2, 5):
            at = m * power
            if low_ns * (1 - 1e-9) <= at <= high_ns * (1 + 1e-9):
                is_told = decades < 2.2 or (m == 1 and round(math.log10(at)) % every == 0)
                ticks.append(Tick(at, duration_words(at) if is_told else ""))
        power *= 10
    return ticks
