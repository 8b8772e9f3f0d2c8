"""A simulated machine's clocks in virtual time. Each has a separate start and drift. They never
read a real clock."""

import trio

WALL_START_MS = 1_767_225_600_000
"""Wall-clock time in ms since 1970 at the start of a simulated run: 2026-01-01."""

PPM = 1_000_000


class MachineClock:
    """Clocks of one simulated machine, in virtual time. Implements the protocol `Clock`."""

    __slots__ = ("_boot_ms", "_rate", "wall_skew_ms")

    def __init__(self, *, boot_ms: int, drift_ppm: int = 0, wall_skew_ms: int = 0) -> None:
        self._boot_ms = boot_ms
        self._rate = 1_000 * (PPM + drift_ppm) / PPM
        self.wall_skew_ms = wall_skew_ms
        """Current error of the machine's wall clock in ms. A positive value means that the clock is
        fast."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since the machine's start."""
        return self._boot_ms + self._elapsed_ms()

    def wall_ms(self) -> int:
        """Return the machine's wall-clock time in ms since 1970, including its error."""
        return WALL_START_MS + self._elapsed_ms() + self.wall_skew_ms

    def _elapsed_ms(self) -> int:
        # Rounded to the microsecond first: a sleep until 4.35 s must not end at 4.349.
        return int(trio.current_time() * self._rate * 1_000 + 0.5) // 1_000
