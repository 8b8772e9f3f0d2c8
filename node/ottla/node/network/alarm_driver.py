"""Timer that calls a function at the next deadline. It sleeps until then, and never polls."""

from collections.abc import Callable

import trio

from ottla.model.seams import Clock
from ottla.node.part_registry import PartRegistry

SLEEP_MS_MAX = 24 * 3_600_000
"""Maximum length of one sleep of an alarm, in milliseconds. A later deadline takes several
sleeps."""


class Alarm:
    """Timer that calls `on_due(now_ms)` whenever the time `next_deadline()` is reached, both in
    monotonic milliseconds.

    Call `rearm` after adding a deadline that is earlier than all others.
    """

    def __init__(
        self,
        clock: Clock,
        next_deadline_ms: Callable[[], int | None],
        on_due: Callable[[int], object],
    ) -> None:
        self._clock = clock
        self._next_deadline_ms = next_deadline_ms
        self._on_due = on_due
        self._sleep: trio.CancelScope | None = None

    def rearm(self) -> None:
        """Restart the alarm's sleep, because the next deadline is now earlier than before."""
        if self._sleep is not None:
            self._sleep.cancel()

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task that sleeps until the alarm's next deadline."""
        parts.task("alarm of waiting requests", self.run)

    async def run(self) -> None:
        """Sleep until each deadline of the alarm and then call `on_due`, until cancelled."""
        while True:
            now_ms = self._clock.monotonic_ms()
            deadline_ms = self._next_deadline_ms()
            if deadline_ms is not None and deadline_ms <= now_ms:
                self._on_due(now_ms)
                await trio.lowlevel.checkpoint()
                continue
            with trio.CancelScope() as self._sleep:
                if deadline_ms is None:
                    await trio.sleep_forever()
                # One millisecond more: the clock counts whole ones, and the deadline must be past.
                await trio.sleep(min(deadline_ms - now_ms + 1, SLEEP_MS_MAX) / 1000)
            self._sleep = None
