"""Looks at the pool of request memory in time: who holds some of it for too long is closed."""

from typing import NoReturn

import trio

from ottla.broker.network.request_memory import SWEEP_MS, RequestMemory
from ottla.model.seams import Clock


async def keep_memory_fair(memory: RequestMemory, clock: Clock) -> NoReturn:
    """Sweep until cancelled."""
    while True:
        memory.sweep(clock.monotonic_ms())
        await trio.sleep(SWEEP_MS / 1_000)
