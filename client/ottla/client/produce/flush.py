"""Flush of a producer: waits until all its buffered records are delivered or have failed."""

from collections.abc import Callable

import trio

from ottla.client.produce.accumulator import Accumulator


async def settle_all(gathered: Accumulator, wake: Callable[[], None]) -> None:
    """Send all buffered records now, and wait until all their batches are delivered or have failed.

    `wake` is called to wake the connections to brokers, because batches no longer wait for
    `linger.ms`.
    """
    batches = gathered.begin_flush()
    try:
        wake()
        while batches:
            batch = batches.pop()
            if not batch.is_settled and batch.parts is None:
                event = trio.Event()
                batch.on_settled.append(event.set)
                await event.wait()
            batches += batch.parts or ()
    finally:
        gathered.end_flush()
    await trio.lowlevel.checkpoint()
