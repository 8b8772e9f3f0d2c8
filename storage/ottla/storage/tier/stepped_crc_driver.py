"""CRC32C of data of any size, computed in steps, so that the event loop is not blocked."""

import trio

from ottla.wire.crc import crc32c

STEP_BYTES = 4 << 20
"""Number of bytes whose CRC is computed in one step. A step takes 1 to 2 ms."""


async def crc_of_large(data: bytes) -> int:
    """Return the CRC32C of the data. Other tasks run between the steps of the computation."""
    if len(data) <= STEP_BYTES:
        return crc32c(data)
    crc = 0
    view = memoryview(data)
    for at in range(0, len(data), STEP_BYTES):
        crc = crc32c(view[at : at + STEP_BYTES], crc)
        await trio.lowlevel.checkpoint()
    return crc
