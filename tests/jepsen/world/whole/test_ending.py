"""The logs that judge the end of a run are read whole, during any cleaning."""

from types import SimpleNamespace
from typing import Any

import trio

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.whole.ending import batches_of
from ottla.wire.batch_builder import build_batch

DIRECTORY = "/logs/state-0"


async def test_records_that_a_swap_has_on_its_way_are_not_missed(autojump_clock: Any) -> None:
    disk = SimulatedDisk(Chance(1).stream("disk"), pause=trio.lowlevel.checkpoint)
    await disk.makedirs(DIRECTORY)
    batch = build_batch([(0, b"k", b"v")])
    await disk.write_atomically(f"{DIRECTORY}/0.log.swap", bytes(batch))
    machine: Any = SimpleNamespace(name="broker-1", disk=disk)
    async with trio.open_nursery() as nursery:

        async def finish() -> None:
            await trio.sleep(1.0)
            await disk.rename(f"{DIRECTORY}/0.log.swap", f"{DIRECTORY}/0.log")

        nursery.start_soon(finish)
        assert await batches_of(machine, DIRECTORY) == {0: bytes(batch)}
