"""Background threads of asyncio event loops."""

import asyncio

from ottla.client.network import aio_bridge
from ottla.client.network.aio_bridge import borrowed_thread


def test_a_loop_that_was_closed_with_an_open_client_is_forgotten() -> None:
    async def borrow() -> None:
        async with borrowed_thread():
            pass

    loop = asyncio.new_event_loop()
    left_open = borrowed_thread()
    thread = loop.run_until_complete(left_open.__aenter__())
    thread.stop()
    loop.close()
    assert loop in aio_bridge._threads

    asyncio.run(borrow())

    assert loop not in aio_bridge._threads
