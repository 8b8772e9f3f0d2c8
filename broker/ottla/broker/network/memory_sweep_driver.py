"""Sweeps the pool of request memory, and gives memory that is free back to the system.

A connection that holds request memory for too long is closed.  After a flood the allocator would
keep for the life of the process what its large buffers took.
"""

import ctypes
from collections.abc import Callable
from typing import NoReturn

import trio

from ottla.broker.network.request_memory import SWEEP_MS, RequestMemory
from ottla.model.seams import Clock


def trim_memory() -> None:
    """Give the allocator's free memory back to the system, where the C library can (glibc).

    256 MiB took 7 ms, without the interpreter's lock.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


async def keep_memory_fair(
    memory: RequestMemory, clock: Clock, trim: Callable[[], None] = trim_memory
) -> NoReturn:
    """Sweep until cancelled."""
    while True:
        now_ms = clock.monotonic_ms()
        memory.sweep(now_ms)
        if memory.take_fall(now_ms):
            await trio.to_thread.run_sync(trim)
        await trio.sleep(SWEEP_MS / 1_000)
