"""Replicas of a failed directory, and replicas that moved between directories."""

from pathlib import Path
from uuid import UUID

import pytest
import trio

from ottla.broker.replicas.replica_manager import OPEN_RETRY_MS
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset, TopicIdPartition, TopicPartition
from ottla.model.log_events import event_of
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import Log, open_log
from ottla.storage.segments.log_config import LogConfig
from tests.broker.replicas.manager_bench import (
    FIRST,
    ManagerBench,
    World,
    begin_publish,
    image_with,
    publish,
    with_setting,
)


@pytest.mark.parametrize("leader", [1, 2])
async def test_partitions_of_a_failed_directory_lead_and_follow_nothing(
    world: World, managed: ManagerBench, leader: int, caplog: pytest.LogCaptureFixture
) -> None:
    """One that went on asking would count as caught up, and join the in-sync replicas again."""
    image = image_with(world, ("t", FIRST), replicas=(1, 2), leader=leader)
    await publish(managed, image)
    partition = managed.table.find("t", 0)
    (directory,) = managed.logs.directories
    managed.manager.on_directory_failed(directory.path, "the disk failed")

    assert [event_of(line) for line in caplog.records] == ["directory.failed"]
    assert managed.fetchers.followed == {}
    assert (partition.is_leader, partition.log) == (False, None)
    assert partition.wanted_isr(0, may_shrink=True) is None
    expected = ErrorCode.KAFKA_STORAGE_ERROR if leader == 1 else ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(RefusedError) as refused:
        partition.leader_log()
    assert refused.value.code is expected

    moved = image_with(
        world, ("t", FIRST), replicas=(1, 2), leader=2, leader_epoch=9, partition_epoch=9
    )
    await publish(managed, moved)
    world.clock.now_ms += OPEN_RETRY_MS
    managed.manager.retry()
    await managed.work.wait_done()
    assert managed.fetchers.followed == {}
    assert partition.log is None


async def test_a_log_that_failed_while_it_was_set_aside_is_not_taken_back(
    world: World, managed: ManagerBench
) -> None:
    key = TopicIdPartition(FIRST, 0)
    replicas = (1, 2, 3)
    await publish(managed, image_with(world, ("t", FIRST), replicas=replicas, leader=2))
    partition = managed.table.find("t", 0)
    log = partition.log
    assert log is not None
    is_cut = managed.fetchers.busy[key] = trio.Event()
    await begin_publish(
        managed,
        image_with(world, ("t", FIRST), replicas=replicas, leader=1, leader_epoch=7),
    )
    log.abandon()
    is_cut.set()
    await managed.work.wait_done()
    assert (partition.is_leader, partition.log) == (False, None)
    assert partition.storage_failure is not None


async def switch_log(managed: ManagerBench, tmp_path: Path) -> Log:
    """Have t-0 use another log from now on, as at the end of its move; return that."""
    at = TopicPartition("t", 0)
    log = await open_log(
        RealDisk((str(tmp_path),)),
        str(tmp_path / "moved"),
        config=LogConfig(),
        topic_id=FIRST,
        is_clean=True,
        recovery_point=Offset(0),
        log_start_offset=Offset(0),
        now_ms=0,
    )
    directory = managed.logs.directory_of(at)
    assert directory is not None
    managed.logs.on_moved = managed.manager.on_moved
    managed.logs.switch_log(at, log, directory)
    return log


@pytest.mark.parametrize("leader", [1, 2])
async def test_a_replica_that_moved_between_directories_goes_on_with_its_new_log(
    leader: int, world: World, managed: ManagerBench, tmp_path: Path
) -> None:
    image = image_with(world, ("t", FIRST), replicas=(1, 2), leader=leader)
    await publish(managed, with_setting(image, "retention.ms", "77"))
    partition = managed.table.find("t", 0)

    log = await switch_log(managed, tmp_path)

    assert partition.log is log
    assert log.config.retention_ms == 77
    assert partition.is_leader == (leader == 1)


async def test_a_replica_that_moved_while_its_log_was_set_aside_takes_the_new_one(
    world: World, managed: ManagerBench, tmp_path: Path
) -> None:
    key = TopicIdPartition(FIRST, 0)
    await publish(managed, image_with(world, ("t", FIRST), replicas=(1, 2), leader=2))
    is_cut = managed.fetchers.busy[key] = trio.Event()
    await begin_publish(
        managed, image_with(world, ("t", FIRST), replicas=(1, 2), leader=1, leader_epoch=7)
    )
    log = await switch_log(managed, tmp_path)
    is_cut.set()
    await managed.work.wait_done()

    partition = managed.table.find("t", 0)
    assert (partition.is_leader, partition.log) == (True, log)


async def test_the_directory_of_a_replica_is_reported_until_the_metadata_has_it(
    world: World, managed: ManagerBench
) -> None:
    at, elsewhere = TopicPartition("t", 0), UUID(int=7)
    await publish(managed, image_with(world, ("t", FIRST), leader=1))
    managed.placed.clear()

    assert not managed.manager.is_placed(at, elsewhere)
    assert managed.placed == {TopicIdPartition(FIRST, 0): elsewhere}
    assert managed.manager.is_placed(at, UUID(int=1))
    managed.manager.report_place(at, UUID(int=1))
    assert managed.placed == {TopicIdPartition(FIRST, 0): UUID(int=1)}
    with pytest.raises(RefusedError):
        managed.manager.is_placed(TopicPartition("none", 0), elsewhere)
