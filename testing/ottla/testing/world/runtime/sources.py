"""Clocks and random numbers of the processes in a run."""

import random
from contextvars import ContextVar
from typing import Any

import trio

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.whole.clock import WALL_START_MS
from ottla.jepsen.world.whole.machine import Machine
from ottla.testing.world.errors import NotInWorldError

CLOCK_READS_PER_INSTANT_MAX = 1_000_000
"""Maximum number of reads of the clock in one virtual instant. Above it, the program is considered
to be in an endless loop without `await`."""


class Sources:
    """The clocks and random numbers of one process in a run. They continue when the process is
    restarted."""

    is_instance = False
    """True if functions that cannot be simulated are refused in this process."""

    def __init__(self, name: str, chance: Chance) -> None:
        self.name = name
        self.random = random.Random(chance.stream(f"program/{name}").below(1 << 53))
        self.signals: dict[int, Any] = {}
        self._reads_at = (-1.0, 0)

    @property
    def process_id(self) -> int:
        """Process id that the program gets from `os.getpid`."""
        return 1_000

    def monotonic_ns(self) -> int:
        """Return the virtual time since the start of the run in ns."""
        return int(self.monotonic_s() * 1_000_000_000)

    def monotonic_s(self) -> float:
        """Return the virtual time since the start of the run in seconds, as event loops do."""
        now_s = trio.current_time()
        at_s, count = self._reads_at
        self._reads_at = (now_s, count + 1 if at_s == now_s else 0)
        if count > CLOCK_READS_PER_INSTANT_MAX:
            self._reads_at = (now_s, 0)
            raise NotInWorldError(
                "the program waits for a clock without `await`, and virtual time does not advance "
                "meanwhile: use `await asyncio.sleep(...)` in the loop"
            )
        return now_s

    def wall_ns(self) -> int:
        """Return the time of the wall clock in ns since 1970."""
        return WALL_START_MS * 1_000_000 + int(self.monotonic_s() * 1e6) * 1_000


class InstanceSources(Sources):
    """The clocks and random numbers of an instance of the user's program."""

    is_instance = True

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine.name, machine.world.chance)
        self._machine = machine

    @property
    def process_id(self) -> int:
        """Process id. It increases by one with each life (run of the program)."""
        return 1_000 + self._machine.start_count

    def wall_ns(self) -> int:
        """Return the time of the simulated machine's wall clock, including its clock error, in ns
        since 1970."""
        return super().wall_ns() + self._machine.clock.wall_skew_ms * 1_000_000


SOURCES: ContextVar[Sources | None] = ContextVar("sources", default=None)
"""Context variable with the sources of the process that owns the current task. None outside of
runs."""
