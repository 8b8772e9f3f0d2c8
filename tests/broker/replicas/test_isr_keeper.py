"""Proposals of a leader for its in-sync sets, its reaction to each response, and its retries."""

from typing import Any, NamedTuple

import pytest

from ottla.broker.replicas import isr_keeper
from ottla.broker.replicas.isr_keeper import (
    REJECTED_PAUSE_MS,
    RETRY_MS_FIRST,
    RETRY_MS_MAX,
    Changes,
    IsrKeeper,
)
from ottla.broker.replicas.partition import Partition
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId, Offset
from ottla.model.settings.broker import BrokerConfig
from ottla.proto import controller_pb2 as pb

World = Any  # the class of the `world` fixture, in conftest.py

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
LAG_MS = 10_000
LOCAL_EPOCH, FOLLOWER_EPOCH = 7, 10


class IsrBench(NamedTuple):
    """Partitions t-0 and u-0 on brokers 1, 2 and 3, led by us; 3 is not in sync."""

    world: World
    keeper: IsrKeeper
    first: Partition
    second: Partition
    due: list[None]
    """An item for each call of `on_due`."""

    @property
    def now_ms(self) -> int:
        return int(self.world.clock.now_ms)

    def fetched(self, partition: Partition, replica: NodeId, end_offset: int = 0) -> None:
        partition.on_follower_fetch(
            replica,
            end_offset=Offset(end_offset),
            log_start_offset=Offset(0),
            broker_epoch=FOLLOWER_EPOCH,
            now_ms=self.now_ms,
        )
        if partition.may_join(replica):
            self.keeper.note(partition)

    def append(self) -> None:
        wall_ms = self.world.clock.wall_ms()
        self.first.append(self.world.batch(b"v"), acks=1, now_ms=wall_ms, mono_ms=self.now_ms)

    def changes(self) -> Changes:
        return self.keeper.changes(self.now_ms)

    def answer(self, changes: Changes, code: ErrorCode = ErrorCode.NONE) -> None:
        response = pb.AlterPartitionResponse()
        for change in changes.values():
            response.topics.add(topic_id=change.topic_id.bytes).partitions.add(
                partition_id=change.index,
                error_code=code,
                leader_id=ONE,
                leader_epoch=change.leader_epoch,
                isr=sorted(change.isr),
                partition_epoch=change.partition_epoch + 1,
            )
        self.keeper.on_answer(changes, response, self.now_ms)


@pytest.fixture
async def kept(world: World) -> IsrBench:
    first, second = [
        await world.add(topic, replicas=(1, 2, 3), lag_ms_max=LAG_MS) for topic in ("t", "u")
    ]
    for partition in (first, second):
        state = world.state(replicas=(1, 2, 3), isr=(1, 2), partition_epoch=1)
        partition.apply(state, partition.config, world.clock.now_ms)
    config = BrokerConfig(node_id=ONE, replica_lag_time_ms_max=LAG_MS)
    keeper = IsrKeeper(world.table, config, lambda: LOCAL_EPOCH)
    due: list[None] = []
    keeper.on_due = lambda: due.append(None)
    keeper.start(world.clock.now_ms)
    kept = IsrBench(world, keeper, first, second, due)
    for partition in (first, second):
        kept.fetched(partition, TWO)
    return kept


async def test_nothing_is_proposed_while_all_in_sync_keep_up(kept: IsrBench) -> None:
    assert kept.changes() == {}
    assert kept.due == []


async def test_a_replica_that_caught_up_is_proposed_until_there_is_an_answer(
    kept: IsrBench,
) -> None:
    kept.fetched(kept.first, THREE)
    assert kept.due
    changes = kept.changes()
    assert {one: change.isr for one, change in changes.items()} == {kept.first: {1, 2, 3}}
    kept.keeper.on_silence("the controller is gone", kept.now_ms)
    assert kept.changes() == changes
    request = kept.keeper.request(changes)
    assert (request.broker_id, request.broker_epoch) == (ONE, LOCAL_EPOCH)
    kept.answer(changes)
    assert kept.changes() == {}
    assert kept.first.isr == {1, 2, 3}
    assert (kept.keeper.expands.value, kept.keeper.shrinks.value) == (1, 0)


async def test_each_silence_doubles_the_pause_and_a_whole_answer_ends_it(kept: IsrBench) -> None:
    kept.fetched(kept.first, THREE)
    assert kept.keeper.pause_ms(kept.now_ms) == 0
    pauses = []
    for _ in range(7):
        kept.keeper.on_silence("no controller", kept.now_ms)
        pauses.append(kept.keeper.pause_ms(kept.now_ms))
    assert pauses == [50, 100, 200, 400, 800, 1_000, 1_000]
    assert (pauses[0], pauses[-1]) == (RETRY_MS_FIRST, RETRY_MS_MAX)
    assert kept.keeper.pause_ms(kept.now_ms + 400) == 600
    kept.answer(kept.changes())
    assert kept.keeper.pause_ms(kept.now_ms) == 0


async def test_an_answer_that_leaves_a_change_out_is_asked_for_again_after_a_pause(
    kept: IsrBench,
) -> None:
    for partition in (kept.first, kept.second):
        kept.fetched(partition, THREE)
    changes = kept.changes()
    kept.answer({kept.second: changes[kept.second]})
    kept.keeper.on_answer({kept.first: changes[kept.first]}, pb.AlterPartitionResponse(), 0)
    assert kept.keeper.pause_ms(0) == RETRY_MS_FIRST
    assert kept.changes() == {kept.first: changes[kept.first]}


async def test_a_change_that_cannot_be_decided_keeps_no_other_out_of_the_request(
    kept: IsrBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isr_keeper, "CHANGES_PER_REQUEST_MAX", 1)
    for partition in (kept.first, kept.second):
        kept.fetched(partition, THREE)
    asked: list[Partition] = []
    for _ in range(3):
        changes = kept.changes()
        asked += changes
        kept.answer(changes, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert asked == [kept.first, kept.second, kept.first]


async def test_a_rejected_change_is_given_up_and_proposed_again_after_its_pause(
    kept: IsrBench,
) -> None:
    kept.fetched(kept.first, THREE)
    kept.answer(kept.changes(), ErrorCode.INELIGIBLE_REPLICA)
    assert kept.first.pending_change is None
    assert kept.keeper.failures.value == 1
    kept.due.clear()
    kept.keeper.note(kept.first)
    assert (kept.changes(), kept.due) == ({}, [])
    kept.keeper.on_time(kept.now_ms + REJECTED_PAUSE_MS)
    assert list(kept.changes()) == [kept.first]


async def test_an_overtaken_change_is_not_proposed_again_and_holds_the_watermark(
    kept: IsrBench,
) -> None:
    kept.fetched(kept.first, THREE)
    kept.answer(kept.changes(), ErrorCode.INVALID_UPDATE_VERSION)
    assert kept.changes() == {}
    assert kept.first.maximal_isr == {1, 2, 3}


async def test_a_change_that_metadata_overtook_gives_way_to_what_is_due_since(
    kept: IsrBench,
) -> None:
    kept.fetched(kept.first, THREE)
    old = kept.changes()[kept.first]
    state = kept.world.state(replicas=(1, 2, 3), isr=(1,), partition_epoch=5)
    kept.first.apply(state, kept.first.config, kept.now_ms)
    new = kept.changes()[kept.first]
    assert (old.partition_epoch, new.partition_epoch) == (1, 5)
    assert new.isr == {1, 2, 3}


async def test_lag_is_looked_for_every_half_of_its_limit(kept: IsrBench) -> None:
    kept.first.append(
        kept.world.batch(b"v"), acks=1, now_ms=kept.world.clock.wall_ms(), mono_ms=kept.now_ms
    )
    shrunk_after_ms = 0
    for _ in range(3 * LAG_MS // kept.keeper.tick_ms):
        kept.world.clock.now_ms += kept.keeper.tick_ms
        shrunk_after_ms += kept.keeper.tick_ms
        kept.keeper.on_time(kept.now_ms)
        if changes := kept.changes():
            break
    assert {one: change.isr for one, change in changes.items()} == {kept.first: {1}}
    assert LAG_MS < shrunk_after_ms <= LAG_MS + LAG_MS // 2
    kept.answer(changes)
    assert (kept.keeper.expands.value, kept.keeper.shrinks.value) == (0, 1)


async def test_time_in_which_the_process_stood_still_makes_no_replica_late(kept: IsrBench) -> None:
    kept.first.append(
        kept.world.batch(b"v"), acks=1, now_ms=kept.world.clock.wall_ms(), mono_ms=kept.now_ms
    )
    kept.world.clock.now_ms += 2 * LAG_MS
    kept.keeper.on_time(kept.now_ms)
    kept.keeper.begin_isr_shrinks(kept.now_ms)
    assert kept.changes() == {}
