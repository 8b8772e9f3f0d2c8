"""Background task that deletes the quota usage of clients and addresses that were idle for an
hour."""

from typing import Protocol

import trio

from ottla.model.seams import Clock
from ottla.node.part_registry import PartRegistry

LOOK_INTERVAL_S = 60


class IdleQuota(Protocol):
    """Interface of a quota from which the usage of idle clients or addresses can be deleted."""

    def forget_idle(self, now_ms: int) -> None:
        """Delete the quota usage of clients or addresses that were idle for an hour."""
        ...


class IdleUsages:
    """Background task that deletes the usage of idle clients and addresses from several quotas
    every minute."""

    def __init__(self, clock: Clock, *quotas: IdleQuota) -> None:
        self._clock = clock
        self._quotas = quotas

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task that deletes the usage of idle clients and addresses."""
        parts.task("idle quotas", self.run)

    async def run(self) -> None:
        """Delete the quota usage of idle clients and addresses, until cancelled. Checks one quota
        per event-loop iteration."""
        while True:
            await trio.sleep(LOOK_INTERVAL_S)
            for quotas in self._quotas:
                quotas.forget_idle(self._clock.monotonic_ms())
                await trio.lowlevel.checkpoint()
