"""Acknowledged flushes: shared by the appends of a partition, and never waiting for another's."""

from typing import Any, cast

import trio
import trio.testing

from ottla.broker.replicas.flush_driver import Flusher
from ottla.broker.replicas.partition import Partition

World = Any  # the class of the `world` fixture, in conftest.py


class HandLog:
    """A log whose flushes end when the test releases them."""

    def __init__(self, *, hangs: bool) -> None:
        self.begun = 0
        self.go_on = trio.Event()
        if not hangs:
            self.go_on.set()

    async def flush(self) -> None:
        self.begun += 1
        await self.go_on.wait()


class HandPartition:
    """The part of a partition that a flush needs."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.log = HandLog(hangs=hangs)

    def on_flushed(self, log: HandLog, now_ms: int) -> None:
        assert log is self.log


def partition(found: HandPartition) -> Partition:
    return cast(Partition, found)


async def test_a_flush_that_hangs_holds_up_no_other_partition(world: World) -> None:
    hanging, other = HandPartition(hangs=True), HandPartition()
    flusher = Flusher(world.clock)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(flusher.run)
        flusher.request(partition(hanging))
        for count in range(1, 4):
            flusher.request(partition(other))
            await trio.testing.wait_all_tasks_blocked()
            assert (hanging.log.begun, other.log.begun) == (1, count)
        nursery.cancel_scope.cancel()


async def test_appends_during_a_flush_share_the_next_one(world: World) -> None:
    found = HandPartition(hangs=True)
    flusher = Flusher(world.clock)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(flusher.run)
        flusher.request(partition(found))
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(5):
            flusher.request(partition(found))
            await trio.testing.wait_all_tasks_blocked()
        assert found.log.begun == 1
        found.log.go_on.set()
        await trio.testing.wait_all_tasks_blocked()
        assert found.log.begun == 2
        nursery.cancel_scope.cancel()
