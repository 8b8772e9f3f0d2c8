"""An alarm clock over somebody's heap of deadlines: it sleeps until the next one, never polls."""

from collections.abc import Callable

import trio

from ottla.model.seams import Clock

SLEEP_MS_MAX = 24 * 3_600_000
"""Longest single sleep; a deadline further off is simply slept for again."""


class Alarm:
    """Calls `on_due(now_ms)` whenever `next_deadline()` has come.

    Call `rearm` when an earlier deadline than all before was added.
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
        """Look at the next deadline again."""
        if self._sleep is not None:
            self._sleep.cancel()

    async def run(self) -> None:
        """Run until cancelled."""
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
                # One millisecond more: the clock counts whole ones, the deadline must be past.
                await trio.sleep(min(deadline_ms - now_ms + 1, SLEEP_MS_MAX) / 1000)
            self._sleep = None
