"""A machine's clocks in virtual time: each began somewhere else, and runs a little wrong."""

import trio

WALL_START_MS = 1_767_225_600_000
"""What the calendar says when a run begins: 2026-01-01."""

PPM = 1_000_000


class MachineClock:
    """Satisfies the seam `Clock`."""

    __slots__ = ("_boot_ms", "_rate", "wall_skew_ms")

    def __init__(self, *, boot_ms: int, drift_ppm: int = 0, wall_skew_ms: int = 0) -> None:
        self._boot_ms = boot_ms
        self._rate = 1_000 * (PPM + drift_ppm) / PPM
        self.wall_skew_ms = wall_skew_ms
        """How far its calendar is off now; it may be set either way."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since the machine's start."""
        return self._boot_ms + self._elapsed_ms()

    def wall_ms(self) -> int:
        """Return what its calendar says."""
        return WALL_START_MS + self._elapsed_ms() + self.wall_skew_ms

    def _elapsed_ms(self) -> int:
        # Rounded to the microsecond first: a sleep until 4.35 s must not end at 4.349.
        return int(trio.current_time() * self._rate * 1_000 + 0.5) // 1_000
