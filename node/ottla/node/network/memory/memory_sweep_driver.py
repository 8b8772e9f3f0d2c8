"""Background task that closes connections that use request memory for too long, and returns free
memory to the operating system.

Without the return of free memory, the allocator would permanently occupy its large buffers after a
flood of requests.
"""

from collections.abc import Callable
from typing import NoReturn

import trio

from ottla.model.seams import Clock
from ottla.node.network.memory.request_memory import SWEEP_MS, RequestMemory
from ottla.node.process_driver import trim_memory


async def sweep_periodically(
    memory: RequestMemory, clock: Clock, trim: Callable[[], None] = trim_memory
) -> NoReturn:
    """Close connections that use request memory for too long, periodically until cancelled. Also
    return free memory to the operating system after a peak."""
    while True:
        now_ms = clock.monotonic_ms()
        memory.sweep(now_ms)
        if memory.check_fall(now_ms):
            await trio.to_thread.run_sync(trim)
        await trio.sleep(SWEEP_MS / 1_000)
