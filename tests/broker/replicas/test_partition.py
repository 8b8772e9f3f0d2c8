"""Leader, in-sync replicas and high watermark of one partition."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.broker.replicas.partition import ACKS_ALL, Partition
from ottla.broker.replicas.partition_port import PartitionPort, WakeKey
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.settings.storage.topic import TopicConfig

World = Any  # the class of the `world` fixture, in conftest.py

TWO = NodeId(2)
THREE = NodeId(3)


def append(world: World, partition: Partition, acks: int = ACKS_ALL) -> Offset:
    info = partition.append(
        world.batch(b"v"),
        acks=acks,
        now_ms=world.clock.wall_ms(),
        mono_ms=world.clock.monotonic_ms(),
    )
    return Offset(info.last_offset + 1)


def fetched(
    world: World, partition: Partition, replica: NodeId, end_offset: int, *, start: int = 0
) -> None:
    partition.on_follower_fetch(
        replica,
        end_offset=Offset(end_offset),
        log_start_offset=Offset(start),
        broker_epoch=10,
        now_ms=world.clock.monotonic_ms(),
    )


def code_of(refused: pytest.ExceptionInfo[RefusedError]) -> ErrorCode:
    return refused.value.code


async def test_a_single_replica_commits_what_it_appends_at_once(world: World) -> None:
    partition = await world.add("t")
    end = append(world, partition)
    assert partition.high_watermark == end == 1
    assert partition.acknowledgement(end, ACKS_ALL) is ErrorCode.NONE


async def test_the_slowest_in_sync_replica_holds_the_high_watermark(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2, 3))
    append(world, partition)
    end = append(world, partition)
    assert partition.high_watermark == 0
    fetched(world, partition, TWO, 2)
    assert partition.high_watermark == 0
    assert partition.acknowledgement(end, ACKS_ALL) is None
    fetched(world, partition, THREE, 1)
    assert partition.high_watermark == 1
    fetched(world, partition, THREE, 2)
    assert partition.acknowledgement(end, ACKS_ALL) is ErrorCode.NONE


async def test_a_partition_moves_while_replicas_come_or_go(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    state = world.state(replicas=(1, 2), isr=(1, 2))
    found = []
    moves: list[dict[str, Any]] = [{}, {"adding": (TWO,)}, {"removing": (TWO,)}, {}]
    for epoch, changes in enumerate(moves, start=1):
        moved = replace(state, partition_epoch=epoch, **changes)
        partition.apply(moved, partition.config, 1_000)
        found.append(partition.is_reassigning)
    assert found == [False, True, True, False]


async def test_below_min_insync_replicas_nothing_is_accepted_and_nothing_committed(
    world: World,
) -> None:
    partition = await world.add("t", replicas=(1, 2), config=TopicConfig(min_insync_replicas=2))
    partition.apply(
        world.state(replicas=(1, 2), isr=(1,), partition_epoch=1), partition.config, 1_000
    )
    with pytest.raises(RefusedError) as refused:
        append(world, partition)
    assert code_of(refused) is ErrorCode.NOT_ENOUGH_REPLICAS
    end = append(world, partition, acks=1)
    assert partition.high_watermark == 0
    assert partition.acknowledgement(end, 1) is ErrorCode.NONE


async def test_more_min_insync_replicas_than_replicas_counts_as_all_of_them(
    world: World,
) -> None:
    partition = await world.add("t", config=TopicConfig(min_insync_replicas=2))
    assert append(world, partition) == 1


async def test_while_the_isr_shrinks_the_old_members_still_count(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition)
    world.clock.now_ms += 31_000
    assert partition.wanted_isr(world.clock.now_ms, may_shrink=False) is None
    assert partition.wanted_isr(world.clock.now_ms, may_shrink=True) == {1}
    partition.begin_isr_change(frozenset({NodeId(1)}), 10)
    partition.advance_high_watermark(world.clock.now_ms)
    assert partition.high_watermark == 0
    partition.apply(
        world.state(replicas=(1, 2), isr=(1,), partition_epoch=1),
        partition.config,
        world.clock.now_ms,
    )
    assert partition.high_watermark == 1


async def test_who_left_by_the_answer_counts_until_metadata_says_so_too(world: World) -> None:
    """After min.insync.replicas was raised, it could still be elected from the ELR."""
    partition = await world.add("t", replicas=(1, 2), config=TopicConfig(min_insync_replicas=1))
    append(world, partition)
    world.clock.now_ms += 31_000
    change = partition.begin_isr_change(frozenset({NodeId(1)}), 10)

    partition.complete_isr_change(
        change, (1,), leader_epoch=3, partition_epoch=1, now_ms=world.clock.now_ms
    )

    assert partition.isr == {1}
    assert partition.high_watermark == 0
    strict = TopicConfig(min_insync_replicas=2)
    shrunk = world.state(replicas=(1, 2), isr=(1,), partition_epoch=1)
    partition.apply(shrunk, strict, world.clock.now_ms)
    assert partition.high_watermark == 0
    partition.apply_config(TopicConfig(min_insync_replicas=1), world.clock.now_ms)
    assert partition.high_watermark == 1


async def test_a_replica_that_caught_up_is_proposed_and_then_counts_before_the_answer(
    world: World,
) -> None:
    partition = await world.add("t", replicas=(1, 2))
    partition.apply(
        world.state(replicas=(1, 2), isr=(1,), partition_epoch=1), partition.config, 1_000
    )
    append(world, partition)
    assert partition.high_watermark == 1
    fetched(world, partition, TWO, 1)
    assert partition.may_join(TWO)
    assert partition.wanted_isr(world.clock.now_ms, may_shrink=False) == {1, 2}
    change = partition.begin_isr_change(frozenset({NodeId(1), TWO}), 10)
    assert not partition.may_join(TWO)
    append(world, partition)
    assert partition.high_watermark == 1
    world.clock.now_ms += 31_000
    partition.abandon_isr_change(change, world.clock.now_ms)
    assert partition.high_watermark == 2
    assert partition.isr == {1}


async def test_a_replica_that_keeps_up_one_fetch_behind_stays_in_sync(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    for end in range(1, 40):
        append(world, partition)
        fetched(world, partition, TWO, end - 1)
        world.clock.now_ms += 1_000
    assert partition.wanted_isr(world.clock.now_ms, may_shrink=True) is None


async def test_a_replica_that_had_everything_of_an_idle_partition_is_not_late_at_once(
    world: World,
) -> None:
    partition = await world.add("t", replicas=(1, 2))
    fetched(world, partition, TWO, 0)
    world.clock.now_ms += 3_600_000
    append(world, partition)
    assert partition.wanted_isr(world.clock.now_ms, may_shrink=True) is None
    world.clock.now_ms += 20_000
    append(world, partition)
    assert partition.wanted_isr(world.clock.now_ms, may_shrink=True) is None
    world.clock.now_ms += 11_000
    append(world, partition)
    assert partition.wanted_isr(world.clock.now_ms, may_shrink=True) == {1}


async def test_leadership_is_refused_by_epoch_before_anything_else(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2), leader=2)
    for asked, expected in (
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (3, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        with pytest.raises(RefusedError) as refused:
            partition.leader_log(Epoch(asked))
        assert code_of(refused) is expected


async def test_a_new_leader_forgets_what_followers_said_in_an_older_epoch(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    fetched(world, partition, TWO, 0)
    append(world, partition)
    partition.apply(
        world.state(replicas=(1, 2), leader_epoch=4, partition_epoch=1), partition.config, 1_000
    )
    assert partition.leader_epoch_start_offset == 1
    assert partition.followers[TWO].end_offset == -1


async def test_an_older_state_changes_nothing(world: World) -> None:
    partition = await world.add("t")
    partition.apply(world.state(leader=2, leader_epoch=5, partition_epoch=9), partition.config, 0)
    partition.apply(world.state(leader=1, leader_epoch=4, partition_epoch=8), partition.config, 0)
    assert partition.leader_id == 2
    assert not partition.is_leader


async def test_a_leader_without_its_log_yet_is_not_leader(world: World) -> None:
    partition = await world.add("t", is_log_there=False)
    with pytest.raises(RefusedError) as refused:
        partition.leader_log()
    assert code_of(refused) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_where_every_append_is_flushed_only_the_flushed_counts(world: World) -> None:
    partition = await world.add("t", config=TopicConfig(flush_messages=1))
    end = append(world, partition)
    assert partition.acknowledgement(end, ACKS_ALL) is None
    assert partition.acknowledgement(end, 1) is None
    assert partition.log is not None
    await partition.log.flush()
    partition.on_flushed(partition.log, world.clock.now_ms)
    assert partition.acknowledgement(end, ACKS_ALL) is ErrorCode.NONE


async def test_fewer_than_flush_messages_records_are_acknowledged_unflushed(world: World) -> None:
    partition = await world.add("t", config=TopicConfig(flush_messages=3))
    assert partition.log is not None
    ends = [append(world, partition) for _ in range(4)]
    assert [partition.acknowledgement(end, ACKS_ALL) for end in ends] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        None,
        None,
    ]
    assert partition.acknowledgement(ends[1], 1) is ErrorCode.NONE
    assert partition.acknowledgement(ends[2], 1) is None
    await partition.log.flush()
    partition.on_flushed(partition.log, world.clock.now_ms)
    end = append(world, partition)
    assert partition.acknowledgement(end, ACKS_ALL) is ErrorCode.NONE
    assert partition.acknowledgement(end, 1) is ErrorCode.NONE


async def test_a_fetch_from_an_earlier_life_of_the_follower_is_refused(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition)
    for broker_epoch, end_offset in ((10, 0), (11, 0)):
        partition.on_follower_fetch(
            TWO,
            end_offset=Offset(end_offset),
            log_start_offset=Offset(0),
            broker_epoch=broker_epoch,
            now_ms=1_000,
        )
    with pytest.raises(RefusedError) as refused:
        fetched(world, partition, TWO, 1)
    assert code_of(refused) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.high_watermark == 0


async def test_a_follower_joins_only_with_the_whole_start_of_the_epoch(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition)
    partition.apply(
        world.state(replicas=(1, 2), isr=(1,), leader_epoch=4, partition_epoch=1),
        TopicConfig(min_insync_replicas=2),
        1_000,
    )
    assert partition.high_watermark == 0
    fetched(world, partition, TWO, 0)
    assert not partition.may_join(TWO)
    fetched(world, partition, TWO, 1)
    assert partition.may_join(TWO)


async def test_a_follower_that_ends_where_our_log_begins_joins_once_it_has_heard_so(
    world: World,
) -> None:
    partition = await world.add("t", replicas=(1, 2))
    partition.apply(
        world.state(replicas=(1, 2), isr=(1,), partition_epoch=1), partition.config, 1_000
    )
    append(world, partition)
    assert partition.log is not None
    await partition.log.delete_records_before(Offset(1))

    fetched(world, partition, TWO, 1)
    has_not_heard = partition.may_join(TWO)
    fetched(world, partition, TWO, 1, start=1)

    assert (has_not_heard, partition.may_join(TWO)) == (False, True)


async def test_what_was_committed_is_acknowledged_while_the_isr_may_be_enough(
    world: World,
) -> None:
    partition = await world.add("t", replicas=(1, 2), config=TopicConfig(min_insync_replicas=2))
    end = append(world, partition)
    fetched(world, partition, TWO, 1)
    assert partition.acknowledgement(end, ACKS_ALL) is ErrorCode.NONE
    partition.apply(
        world.state(replicas=(1, 2), isr=(1,), partition_epoch=1), partition.config, 1_000
    )
    assert partition.acknowledgement(end, ACKS_ALL) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    partition.begin_isr_change(frozenset({NodeId(1), TWO}), 10)
    assert partition.acknowledgement(end, ACKS_ALL) is ErrorCode.NONE


async def test_with_flushes_demanded_a_record_is_committed_when_leader_and_follower_flushed(
    world: World,
) -> None:
    partition = await world.add("t", replicas=(1, 2), config=TopicConfig(flush_messages=1))
    end = append(world, partition)
    fetched(world, partition, TWO, end)  # a follower fetches from where it has flushed
    assert partition.high_watermark == 0
    assert partition.log is not None
    await partition.log.flush()
    partition.on_flushed(partition.log, world.clock.now_ms)
    assert partition.high_watermark == end


@pytest.fixture
def woken(world: World) -> list[WakeKey]:
    """The keys that partitions made from now on wake."""
    keys: list[WakeKey] = []
    world.port = PartitionPort(keys.append, world.flushes_due.append, world.isrs_due.append)
    return keys


async def test_an_append_wakes_followers_and_its_commit_wakes_the_rest(
    world: World, woken: list[WakeKey]
) -> None:
    partition = await world.add("t", replicas=(1, 2))
    fetched(world, partition, TWO, 0)
    woken.clear()
    append(world, partition)
    assert woken == [partition.end_offset_key]
    fetched(world, partition, TWO, 1)
    assert woken == [partition.end_offset_key, partition.high_watermark_key]
    fetched(world, partition, TWO, 1)
    assert woken == [partition.end_offset_key, partition.high_watermark_key]


async def test_what_a_coordinator_appends_wakes_as_a_produce_does(
    world: World, woken: list[WakeKey]
) -> None:
    partition = await world.add("t", config=TopicConfig(flush_messages=1))
    woken.clear()
    partition.append_of_coordinator(bytes(world.batch(b"v")), now_ms=1_000, mono_ms=1_000)
    assert woken == [partition.end_offset_key]
    assert world.flushes_due == [partition]
    assert partition.log is not None
    await partition.log.flush()
    partition.on_flushed(partition.log, world.clock.now_ms)
    assert partition.high_watermark_key in woken


async def test_a_follower_that_deletes_or_takes_back_what_it_had_wakes_who_waits(
    world: World, woken: list[WakeKey]
) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition)
    fetched(world, partition, TWO, 1)
    for end_offset, start in ((1, 1), (0, 0)):
        woken.clear()
        fetched(world, partition, TWO, end_offset, start=start)
        assert woken == [partition.high_watermark_key]


@pytest.mark.parametrize(
    "change",
    [
        lambda world, partition: partition.fail("its disk failed"),
        lambda world, partition: partition.detach_log().abandon(),
        lambda world, partition: partition.remove().abandon(),
        lambda world, partition: partition.apply(
            world.state(replicas=(1, 2), leader=2, leader_epoch=4, partition_epoch=1),
            partition.config,
            world.clock.now_ms,
        ),
    ],
    ids=["failed", "set aside", "removed", "deposed"],
)
async def test_a_leader_that_leads_no_longer_wakes_all_that_wait(
    world: World, woken: list[WakeKey], change: Callable[[World, Partition], None]
) -> None:
    partition = await world.add("t", replicas=(1, 2))
    woken.clear()
    change(world, partition)
    assert set(woken) == {partition.high_watermark_key, partition.end_offset_key}


async def test_a_log_that_opens_wakes_all_that_wait_for_its_leader(
    world: World, woken: list[WakeKey]
) -> None:
    partition = await world.add("t", is_log_there=False)
    woken.clear()
    partition.attach(await world.open_log(partition, partition.config), world.clock.now_ms)
    assert set(woken) == {partition.high_watermark_key, partition.end_offset_key}
    assert world.isrs_due == [partition]


async def test_other_brokers_wake_a_deletion_that_waits_for_a_replica_out_of_sync(
    world: World, woken: list[WakeKey]
) -> None:
    whole, short = await world.add("whole", replicas=(1, 2)), await world.add("t", replicas=(1, 2))
    short.apply(world.state(replicas=(1, 2), isr=(1,), partition_epoch=1), short.config, 1_000)
    for each in (woken, world.isrs_due):
        each.clear()
    for partition in (whole, short):
        partition.on_brokers_changed(world.clock.now_ms)
    assert woken == [short.high_watermark_key]
    assert world.isrs_due == [short]


async def test_a_replica_that_may_join_has_the_isr_reviewed(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    partition.apply(
        world.state(replicas=(1, 2), isr=(1,), partition_epoch=1), partition.config, 1_000
    )
    append(world, partition)
    world.isrs_due.clear()
    fetched(world, partition, TWO, 0)
    assert world.isrs_due == []
    fetched(world, partition, TWO, 1)
    assert world.isrs_due == [partition]
