"""The logs that judge the end of a run are read whole, during any cleaning."""

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.ending import EndJudge, batches_of
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


async def test_a_tiered_log_whose_records_are_all_copied_needs_no_local_file(
    autojump_clock: Any,
) -> None:
    disk = SimulatedDisk(Chance(1).stream("disk"), pause=trio.lowlevel.checkpoint)
    await disk.makedirs(DIRECTORY)
    log = SimpleNamespace(
        directory=DIRECTORY, end_offset=8, log_start_offset=0, local_start_offset=8, failure=None
    )
    cluster: Any = SimpleNamespace(
        brokers={1: SimpleNamespace(logs=[("state-0", log)])},
        broker_machines={1: SimpleNamespace(name="broker-1", disk=disk)},
    )
    none: Any = None
    judge = EndJudge(cluster, none, none, none)

    await judge._look_for_files()

    log.local_start_offset = 7
    with pytest.raises(Violation, match="ends at 8, its files at 7"):
        await judge._look_for_files()
