"""Forgets what clients and addresses used that have been idle for an hour."""

from typing import Protocol

import trio

from ottla.model.seams import Clock

LOOK_INTERVAL_S = 60


class Forgetful(Protocol):
    """Quotas that keep what was used."""

    def forget_idle(self, now_ms: int) -> None:
        """Forget what was not used for an hour."""
        ...


class IdleUsages:
    """The usages of some quotas, looked through every minute."""

    def __init__(self, clock: Clock, *quotas: Forgetful) -> None:
        self._clock = clock
        self._quotas = quotas

    async def run(self) -> None:
        """Run until cancelled; one quota's usages in an event-loop iteration."""
        while True:
            await trio.sleep(LOOK_INTERVAL_S)
            for quotas in self._quotas:
                quotas.forget_idle(self._clock.monotonic_ms())
                await trio.lowlevel.checkpoint()
