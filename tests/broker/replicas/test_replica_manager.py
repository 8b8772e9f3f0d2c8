"""Replica manager: the broker leads and follows the partitions of the metadata, and no others."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import trio

from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.replica_manager import OPEN_RETRY_MS
from ottla.metadata.directories import UNASSIGNED
from ottla.metadata.image import MetadataImage, Provenance, Topic
from ottla.metadata.persistent_map import PersistentMap
from ottla.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset, TopicIdPartition, TopicPartition
from ottla.node.network.purgatory import WaitingEntry
from ottla.storage.log.log import Log
from ottla.storage.manager.log_manager_driver import LogManager
from tests.broker.replicas.manager_bench import (
    FIRST,
    SECOND,
    ManagerBench,
    World,
    begin_publish,
    image_with,
    publish,
    until,
    with_setting,
)


async def test_a_new_topic_gets_its_log_and_is_led(world: World, managed: ManagerBench) -> None:
    await publish(managed, image_with(world, ("t", FIRST)))
    partition = managed.table.find("t", 0)
    assert partition.is_leader
    assert partition is managed.table.find_by_id(FIRST, 0)
    assert managed.logs.get(TopicPartition("t", 0)) is partition.log


async def test_the_chosen_directory_is_reported(world: World, managed: ManagerBench) -> None:
    await publish(managed, image_with(world, ("t", FIRST)))
    (directory,) = managed.logs.directories
    assert managed.placed == {TopicIdPartition(FIRST, 0): directory.directory_id}


async def test_a_log_that_could_not_be_made_is_tried_again(
    world: World, managed: ManagerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_full(*arguments: Any, **named: Any) -> Log:
        raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")

    image = image_with(world, ("t", FIRST))
    with monkeypatch.context() as patch:
        patch.setattr(managed.logs, "create", is_full)
        await publish(managed, image)
        partition = managed.table.find("t", 0)
        with pytest.raises(RefusedError) as refused:
            partition.leader_log()
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    world.clock.now_ms += OPEN_RETRY_MS
    await publish(managed, image)
    assert partition.leader_log() is managed.logs.get(TopicPartition("t", 0))


@pytest.mark.parametrize("leader", [1, 2])
async def test_a_new_leader_flushes_an_old_tail_without_an_append(
    world: World, managed: ManagerBench, leader: int
) -> None:
    """A new leader may have been a follower whose flush was not done yet."""
    before = image_with(world, ("t", FIRST), replicas=(1, 2))
    image = image_with(world, ("t", FIRST), replicas=(1, 2), leader=leader, leader_epoch=9)
    flushed = PersistentMap({"flush.messages": "1"})
    configs: PersistentMap[tuple[int, str], PersistentMap[str, str]] = PersistentMap(
        {(TOPIC_RESOURCE, "t"): flushed}
    )
    await publish(managed, replace(before, configs=configs))
    partition = managed.table.find("t", 0)
    partition.append(world.batch(b"v"), acks=1, now_ms=world.clock.wall_ms(), mono_ms=0)
    managed.flush_due.clear()

    await publish(managed, replace(image, configs=configs))

    assert managed.flush_due == [partition]


async def test_a_tail_is_flushed_once_a_topic_demands_it(
    world: World, managed: ManagerBench
) -> None:
    image = image_with(world, ("t", FIRST))
    await publish(managed, image)
    partition = managed.table.find("t", 0)
    partition.append(world.batch(b"v"), acks=1, now_ms=world.clock.wall_ms(), mono_ms=0)

    flushed = PersistentMap({"flush.messages": "1"})
    await publish(managed, replace(image, configs=PersistentMap({(TOPIC_RESOURCE, "t"): flushed})))

    assert managed.flush_due == [partition]


GONE = UUID(int=5_000)


@pytest.mark.parametrize("holding", ["isr", "elr", "last_known_elr", "leader", "none of them"])
async def test_a_replica_that_lies_in_a_missing_directory_stays_offline(
    world: World, managed: ManagerBench, holding: str
) -> None:
    """An empty log in another directory could be elected for the records in the missing one."""
    state = replace(
        world.state(replicas=(1, 2), isr=(2,), leader=2, partition_epoch=7),
        directories=(GONE, UUID(int=6_000)),
    )
    if holding != "none of them":  # which an unclean election takes as well
        held = NodeId(1) if holding == "leader" else (NodeId(1),)
        state = replace(state, **{holding: held})
    image = image_with(world, ("t", FIRST))
    topic = Topic("t", FIRST, PersistentMap({0: state}))
    await publish(managed, replace(image, topics=PersistentMap({FIRST: topic})))
    partition = managed.table.by_id[FIRST][0]
    assert partition.log is None
    assert partition.storage_failure == f"its log directory {GONE} is not here"
    assert managed.placed == {}


@pytest.mark.parametrize("change", ["new", "unassigned"])
async def test_a_new_replica_is_made_in_another_directory(
    world: World, managed: ManagerBench, change: str
) -> None:
    state = replace(
        world.state(replicas=(1, 2), isr=(2,), leader=2, partition_epoch=7),
        directories=(GONE, UUID(int=6_000)),
    )
    if change == "new":
        state = replace(state, isr=state.replicas, leader_epoch=Epoch(0), partition_epoch=0)
    else:
        state = replace(state, isr=state.replicas, directories=(UNASSIGNED, UNASSIGNED))
    image = image_with(world, ("t", FIRST))
    topic = Topic("t", FIRST, PersistentMap({0: state}))
    await publish(managed, replace(image, topics=PersistentMap({FIRST: topic})))
    assert managed.table.by_id[FIRST][0].log is not None
    (directory,) = managed.logs.directories
    assert managed.placed == {TopicIdPartition(FIRST, 0): directory.directory_id}


async def test_partitions_of_others_are_not_made(world: World, managed: ManagerBench) -> None:
    await publish(managed, image_with(world, ("t", FIRST), replicas=(2,), leader=2))
    assert list(managed.table) == []
    assert len(managed.logs) == 0


class Waiter(WaitingEntry):
    """Completes when its partition no longer leads."""

    def __init__(self, partition: Partition) -> None:
        super().__init__()
        self.partition = partition

    def try_complete(self) -> bool:
        return not self.partition.is_leader

    def on_expire(self) -> None:
        raise AssertionError("no test should wait that long")

    def on_fault(self, fault: Exception) -> None:
        raise fault


async def test_a_deleted_topic_is_unknown_and_its_waiting_requests_fail(
    world: World, managed: ManagerBench
) -> None:
    await publish(managed, image_with(world, ("t", FIRST)))
    partition = managed.table.find("t", 0)
    managed.purgatory.watch([partition.high_watermark_key], Waiter(partition), 10_000)
    await publish(managed, image_with(world))
    assert managed.purgatory.waiting_count == 0
    assert not managed.purgatory.errors.counts
    with pytest.raises(RefusedError) as refused:
        managed.table.find("t", 0)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(managed.logs) == 0


async def test_a_topic_deleted_and_recreated_at_once_starts_empty(
    world: World, managed: ManagerBench
) -> None:
    await publish(managed, image_with(world, ("t", FIRST)))
    old = managed.table.find("t", 0)
    old.append(world.batch(b"a"), acks=1, now_ms=world.clock.wall_ms(), mono_ms=0)
    await publish(managed, image_with(world, ("t", SECOND)))
    new = managed.table.find("t", 0)
    assert new.topic_id == SECOND
    assert new.log is not None
    assert (new.is_leader, new.log.end_offset, old.is_removed) == (True, 0, True)


async def test_losing_leadership_keeps_the_log(world: World, managed: ManagerBench) -> None:
    await publish(managed, image_with(world, ("t", FIRST), replicas=(1, 2)))
    await publish(
        managed,
        image_with(
            world, ("t", FIRST), replicas=(1, 2), leader=2, leader_epoch=4, partition_epoch=1
        ),
    )
    partition = managed.table.find("t", 0)
    assert not partition.is_leader
    assert partition.log is not None


async def test_a_leader_that_is_deposed_commits_nothing_by_settings_that_came_after(
    world: World, managed: ManagerBench
) -> None:
    """Metadata that brings both at once is one step: no leader has the new settings alone."""
    led = image_with(world, ("t", FIRST), replicas=(1, 2), isr=(1,))
    await publish(managed, with_setting(led, "min.insync.replicas", "2"))
    partition = managed.table.find("t", 0)
    clock = world.clock
    partition.append(
        world.batch(b"v"), acks=1, now_ms=clock.wall_ms(), mono_ms=clock.monotonic_ms()
    )
    assert partition.high_watermark == 0

    elected = image_with(
        world, ("t", FIRST), replicas=(1, 2), isr=(2,), leader=2, leader_epoch=4, partition_epoch=1
    )
    await publish(managed, with_setting(elected, "min.insync.replicas", "1"))

    assert not partition.is_leader
    assert partition.min_isr_count == 1
    assert partition.high_watermark == 0


async def test_topic_settings_reach_the_log_at_once(world: World, managed: ManagerBench) -> None:
    image = image_with(world, ("t", FIRST))
    await publish(managed, image)
    partition = managed.table.find("t", 0)
    assert partition.log is not None
    for resource, key, value in (
        ((BROKER_RESOURCE, ""), "message.max.bytes", 7_777),
        ((BROKER_RESOURCE, "1"), "message.max.bytes", 8_888),
        ((TOPIC_RESOURCE, "t"), "max.message.bytes", 9_999),
    ):
        changed = MetadataImage(
            provenance=image.provenance,
            topics=image.topics,
            topic_ids=image.topic_ids,
            configs=managed.table.image.configs.set(resource, PersistentMap({key: str(value)})),
        )
        await publish(managed, changed)
        assert partition.config.max_message_bytes == value
        assert partition.log.config.max_message_bytes == value


async def test_a_brokers_own_settings_reach_the_logs_at_once_too(
    world: World, managed: ManagerBench
) -> None:
    image = image_with(world, ("t", FIRST))
    await publish(managed, image)
    log = managed.table.find("t", 0).log
    assert log is not None
    settings = PersistentMap(
        {"producer.id.expiration.ms": "5000", "log.segment.delete.delay.ms": "7"}
    )
    changed = replace(image, configs=PersistentMap({(BROKER_RESOURCE, ""): settings}))
    await publish(managed, changed)
    assert (log.config.producer_id_expiration_ms, log.config.file_delete_delay_ms) == (5_000, 7)
    await publish(managed, image)
    assert log.config.producer_id_expiration_ms == 86_400_000


async def test_how_long_records_are_kept_is_looked_at_when_it_changes(
    world: World, managed: ManagerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[None] = []
    monkeypatch.setattr(managed.logs, "apply_retention_soon", lambda: looks.append(None))
    image = image_with(world, ("t", FIRST))
    await publish(managed, image)
    seen = []
    for texts in (
        {"retention.ms": "5"},
        {"retention.ms": "5", "segment.ms": "7"},
        {"segment.ms": "7"},
        {"retention.bytes": "9"},
    ):
        configs = {(TOPIC_RESOURCE, "t"): PersistentMap(texts)}
        await publish(managed, replace(image, configs=PersistentMap(configs)))
        seen.append(len(looks))
    assert seen == [1, 1, 2, 3]


async def test_a_log_that_the_metadata_does_not_place_here_is_stray(
    world: World, managed: ManagerBench
) -> None:
    image = image_with(world, ("t", FIRST))
    found = TopicPartition("t", 0)
    assert not managed.manager.is_stray(image, found, FIRST)
    assert managed.manager.is_stray(image, found, SECOND)
    assert managed.manager.is_stray(image, TopicPartition("t", 1), FIRST)
    assert managed.manager.is_stray(image_with(world), found, FIRST)


async def test_a_partition_led_elsewhere_is_followed(world: World, managed: ManagerBench) -> None:
    await publish(managed, image_with(world, ("t", FIRST), replicas=(1, 2), leader=2))
    assert managed.fetchers.followed == {TopicIdPartition(FIRST, 0): (2, 3)}


async def test_a_partition_stops_fetching_before_it_leads_or_follows_another_leader(
    world: World, managed: ManagerBench
) -> None:
    key = TopicIdPartition(FIRST, 0)
    replicas = (1, 2, 3)
    await publish(managed, image_with(world, ("t", FIRST), replicas=replicas, leader=2))
    await publish(
        managed,
        image_with(
            world, ("t", FIRST), replicas=replicas, leader=3, leader_epoch=6, partition_epoch=3
        ),
    )
    assert (managed.fetchers.left, managed.fetchers.followed) == ([key], {key: (3, 6)})
    await publish(
        managed,
        image_with(
            world, ("t", FIRST), replicas=replicas, leader=1, leader_epoch=7, partition_epoch=4
        ),
    )
    assert (managed.fetchers.left, managed.fetchers.followed) == ([key, key], {})
    assert managed.table.find("t", 0).is_leader


async def test_a_change_of_the_in_sync_set_alone_disturbs_no_follower(
    world: World, managed: ManagerBench
) -> None:
    replicas = (1, 2, 3)
    await publish(managed, image_with(world, ("t", FIRST), replicas=replicas, leader=2))
    await publish(
        managed,
        image_with(world, ("t", FIRST), replicas=replicas, leader=2, isr=(2, 3), partition_epoch=3),
    )
    assert managed.fetchers.left == []


async def test_a_deleted_topic_is_left_before_its_log_goes(
    world: World, managed: ManagerBench
) -> None:
    await publish(managed, image_with(world, ("t", FIRST), replicas=(1, 2), leader=2))
    await publish(managed, image_with(world))
    assert managed.fetchers.left == [TopicIdPartition(FIRST, 0)]
    assert len(managed.logs) == 0


async def test_a_follower_whose_log_is_still_cut_back_leads_when_that_is_done(
    world: World, managed: ManagerBench
) -> None:
    """A log that a duty still changes accepts no appends; and no metadata waits for the disk."""
    key = TopicIdPartition(FIRST, 0)
    replicas = (1, 2, 3)
    await publish(managed, image_with(world, ("t", FIRST), replicas=replicas, leader=2))
    partition = managed.table.find("t", 0)
    log = partition.log
    is_cut = managed.fetchers.busy[key] = trio.Event()

    leading = image_with(
        world, ("t", FIRST), replicas=replicas, leader=1, leader_epoch=7, partition_epoch=4
    )
    await begin_publish(managed, leading)
    await begin_publish(managed, replace(leading, provenance=Provenance(Offset(2), Epoch(1), 0)))
    assert (partition.leader_id, partition.is_leader, partition.log) == (1, False, None)
    with pytest.raises(RefusedError) as refused:
        partition.leader_log()
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    is_cut.set()
    await managed.work.wait_done()
    assert partition.leader_log() is log
    assert managed.led == [partition]


async def test_a_deleted_topics_log_goes_when_its_follower_is_done_with_it(
    world: World, managed: ManagerBench
) -> None:
    await publish(managed, image_with(world, ("t", FIRST), replicas=(1, 2), leader=2))
    is_cut = managed.fetchers.busy[TopicIdPartition(FIRST, 0)] = trio.Event()
    await begin_publish(managed, image_with(world, ("t", SECOND)))
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert len(managed.logs) == 1
    assert managed.table.find("t", 0).log is None

    is_cut.set()
    await managed.work.wait_done()
    log = managed.table.find("t", 0).log
    assert log is not None
    assert log.topic_id == SECOND


class HangingLogs:
    """Creations of topic "hangs" wait for an event; the number of all of them."""

    def __init__(self, logs: LogManager, patch: pytest.MonkeyPatch) -> None:
        self.go_on = trio.Event()
        self.creations: list[str] = []
        create = logs.create

        async def create_or_hang(at: TopicPartition, *arguments: Any, **named: Any) -> Log:
            self.creations.append(at.topic)
            if at.topic == "hangs":
                await self.go_on.wait()
            return await create(at, *arguments, **named)

        patch.setattr(logs, "create", create_or_hang)


async def test_a_disk_that_hangs_holds_up_no_metadata_and_no_other_log(
    world: World, managed: ManagerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = HangingLogs(managed.logs, monkeypatch)
    hanging = image_with(world, ("hangs", FIRST))
    await begin_publish(managed, hanging)
    await begin_publish(managed, image_with(world, ("hangs", FIRST), ("t", SECOND)))

    await until(lambda: managed.table.find("t", 0).is_leader)
    with pytest.raises(RefusedError) as refused:
        managed.table.find("hangs", 0).leader_log()
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (managed.manager.is_opening("hangs"), managed.manager.is_opening("t")) == (True, False)

    logs.go_on.set()
    await managed.work.wait_done()
    assert managed.table.find("hangs", 0).is_leader
    assert not managed.manager.is_opening("hangs")
    assert sorted(logs.creations) == ["hangs", "t"]


async def test_settings_that_change_while_a_log_is_made_are_in_force(
    world: World, managed: ManagerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = HangingLogs(managed.logs, monkeypatch)
    image = image_with(world, ("hangs", FIRST))
    await begin_publish(managed, image)
    await trio.testing.wait_all_tasks_blocked(0.01)
    configs = image.configs.set((TOPIC_RESOURCE, "hangs"), PersistentMap({"retention.ms": "-1"}))
    await begin_publish(managed, replace(image, configs=configs))
    logs.go_on.set()
    await managed.work.wait_done()
    assert managed.table.find("hangs", 0).leader_log().config.retention_ms == -1


async def test_a_topic_that_goes_while_its_log_is_made_leaves_none(
    world: World, managed: ManagerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = HangingLogs(managed.logs, monkeypatch)
    await begin_publish(managed, image_with(world, ("hangs", FIRST)))
    await trio.testing.wait_all_tasks_blocked(0.01)
    await begin_publish(managed, image_with(world))
    logs.go_on.set()
    await managed.work.wait_done()
    assert len(managed.logs) == 0
    assert list(managed.table) == []


async def test_a_replica_that_goes_and_comes_back_does_not_keep_the_log_that_is_deleted(
    world: World, managed: ManagerBench
) -> None:
    image = image_with(world, ("t", FIRST))
    await publish(managed, image)
    old = managed.table.find("t", 0).log
    is_cut = managed.fetchers.busy[TopicIdPartition(FIRST, 0)] = trio.Event()
    await begin_publish(managed, image_with(world))
    await begin_publish(managed, image)
    assert managed.table.find("t", 0).log is None
    is_cut.set()
    await managed.work.wait_done()
    new = managed.table.find("t", 0).leader_log()
    assert (new is not old, new.failure) == (True, None)


async def test_a_log_that_cannot_be_made_is_tried_once_a_round_whatever_the_metadata_does(
    world: World, managed: ManagerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    creations: list[TopicPartition] = []

    async def is_full(at: TopicPartition, *arguments: Any, **named: Any) -> Log:
        creations.append(at)
        raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")

    monkeypatch.setattr(managed.logs, "create", is_full)
    for epoch in range(10):
        await publish(managed, image_with(world, ("t", FIRST), partition_epoch=epoch))
    assert len(creations) == 1
    for _ in range(2):
        world.clock.now_ms += OPEN_RETRY_MS
        managed.manager.retry()
        await managed.work.wait_done()
    assert len(creations) == 3
