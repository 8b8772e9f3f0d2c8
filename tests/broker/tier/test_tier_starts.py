"""Followers that begin after a copied segment."""

import pytest

from ottla.broker.replicas.tier_start import epoch_before
from ottla.broker.tier.tier_starts_driver import StoreStarts
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset
from tests.broker.conftest import World
from tests.broker.tier.tiered_broker import log_of, open_tiered


@pytest.mark.parametrize(
    ("offset", "earlier_end", "expected"), [(100, 100, 4), (101, 100, 6), (99, 100, 4)]
)
def test_the_epoch_before_an_offset_is_the_earlier_one_if_its_records_reach_it(
    offset: int, earlier_end: int, expected: int
) -> None:
    found = epoch_before(
        Offset(offset), epoch=Epoch(6), earlier_epoch=Epoch(4), earlier_end=Offset(earlier_end)
    )
    assert found == expected


async def test_a_follower_begins_at_the_end_of_the_segment_before_the_leaders_records(
    world: World,
) -> None:
    async with open_tiered(world) as broker:
        partition = await broker.add()
        broker.fill(partition, 11)
        log = log_of(partition)
        async with broker.running():
            end = log.local_segments()[-1].base_offset
            await broker.until(lambda: log.local_start_offset == end)
        starts = StoreStarts(world.table, broker.metadata, broker.reader)
        previous = Offset(log.local_start_offset - 1)
        start = await starts.find(partition.key, previous, partition.leader_epoch)
        assert start.offset == log.local_start_offset
        assert list(start.epochs) == list(log.epochs())

        follower = log_of(await broker.add("copy"))
        await follower.begin_at(
            start.offset,
            log_start_offset=Offset(0),
            epochs=start.epochs,
            producer_snapshot=start.producer_snapshot,
            now_ms=world.clock.wall_ms(),
        )
        assert (follower.log_start_offset, follower.end_offset) == (0, start.offset)
        assert follower.high_watermark == start.offset

        with pytest.raises(RefusedError) as refusal:
            await starts.find(partition.key, previous, Epoch(partition.leader_epoch + 1))
        assert refusal.value.code is ErrorCode.OFFSET_NOT_AVAILABLE
