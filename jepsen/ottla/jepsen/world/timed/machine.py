"""A machine of the world: a clock that drifts and jumps, a disk that takes its time and fails."""

import math
from dataclasses import dataclass

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.timed.timeline import MS, Timeline, sleep
from ottla.storage.disk_seam import DiskFile

OPERATION_US = 10
"""What any awaitable operation of a disk takes."""

EPOCH_MS = 1_700_000_000_000
"""What the wall clocks show when a world begins, more or less."""


class DriftingClock:
    """Satisfies the seam `Clock`; the monotonic half drifts, the wall half jumps too."""

    __slots__ = ("_drift_ppm", "_timeline", "wall_offset_ms")

    def __init__(self, timeline: Timeline, drift_ppm: int) -> None:
        self._timeline = timeline
        self._drift_ppm = drift_ppm
        self.wall_offset_ms = 0

    def monotonic_ms(self) -> int:
        """Return the milliseconds that this clock has counted."""
        now_us = self._timeline.now_us
        return (now_us + now_us * self._drift_ppm // 1_000_000) // MS

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970 that this clock believes in."""
        return EPOCH_MS + self.monotonic_ms() + self.wall_offset_ms

    def delay_us_until(self, monotonic_ms: int) -> int:
        """Return how long it truly takes until this clock shows an instant."""
        local_us = monotonic_ms * MS
        scale = 1_000_000 + self._drift_ppm
        true_us = (local_us * 1_000_000 + scale - 1) // scale
        return max(0, true_us - self._timeline.now_us)


@dataclass(slots=True, kw_only=True)
class DiskWeather:
    """How slow a disk is."""

    fsync_us_mean: int = 1 * MS
    stall: float = 0.0
    """Chance of an fsync that takes a hundred times as long."""


def swarm_disk(chance: Chance) -> DiskWeather:
    """Draw a disk: quick, slow, or one that stalls."""
    stall = 0.0 if chance.below(2) == 0 else 0.05
    return DiskWeather(fsync_us_mean=(200, 2 * MS, 30 * MS)[chance.below(3)], stall=stall)


class SlowDisk(SimulatedDisk):
    """The simulated disk, whose operations take virtual time: little, but for an fsync."""

    def __init__(self, chance: Chance, weather: DiskWeather) -> None:
        super().__init__(chance, pause=self._take_time)
        self.weather = weather
        self.fsync_count = 0
        self._chance = chance
        self._fsync_us = 0

    async def fsync(self, file: DiskFile) -> None:
        """Flush what is written now, after as long as the weather has it."""
        delay_us = -self.weather.fsync_us_mean * math.log(1.0 - self._chance.random())
        if self.weather.stall and self._chance.chance(self.weather.stall):
            delay_us *= 100
        self.fsync_count += 1
        self._fsync_us = int(delay_us)
        await super().fsync(file)

    async def _take_time(self) -> None:
        delay_us, self._fsync_us = OPERATION_US + self._fsync_us, 0
        await sleep(delay_us)
