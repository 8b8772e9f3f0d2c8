"""State of a log belongs to its topic's id: nothing of it passes to a later topic's log."""

import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from uuid import UUID

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.jepsen.world.rng import SeededRng
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset, TopicPartition
from ottla.model.settings.broker import BrokerConfig
from ottla.storage.directories.checkpoint_file import parse_checkpoint
from ottla.storage.directories.checkpoints_driver import CHECKPOINT_FILES, Checkpoints
from ottla.storage.directories.meta_properties import MetaProperties, format_meta_properties
from ottla.storage.disk.disk_seam import Disk, DiskFile
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import Log
from ottla.storage.log.log_owner import NO_OWNER
from ottla.storage.manager.log_manager_driver import LogManager, open_log_manager
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import build_batch
from tests.storage.log.workbench import read_values

A0 = TopicPartition("a", 0)
OLD = UUID(int=1000)
NEW = UUID(int=2000)
CONFIG = LogConfig()
DIRECTORIES = ("/one", "/two")
SEEDS = range(12)
STARTS = count()


class TrioClock:
    """Time is trio's."""

    def monotonic_ms(self) -> int:
        return int(trio.current_time() * 1_000)

    wall_ms = monotonic_ms


async def formatted(disk: Disk, *paths: str) -> None:
    for index, path in enumerate(paths):
        await disk.makedirs(path)
        identity = MetaProperties(
            cluster_id="c", node_id=NodeId(1), directory_id=UUID(int=500 + index)
        )
        await disk.write_atomically(f"{path}/meta.properties", format_meta_properties(identity))


async def world_disk(seed: int = 0, *paths: str) -> SimulatedDisk:
    disk = SimulatedDisk(SeededRng(seed), pause=trio.lowlevel.checkpoint)
    await formatted(disk, *(paths or ("/one",)))
    disk.flush_everything()
    return disk


@asynccontextmanager
async def started(
    disk: Disk, *paths: str, ours: UUID | None = None, lies_in: UUID | None = None
) -> AsyncIterator[LogManager]:
    """Start on a disk where the cluster places the topic of one id only, in one directory."""
    config = BrokerConfig(node_id=NodeId(1), log_dirs=paths or ("/one",))
    async with open_log_manager(disk, config, TrioClock(), SeededRng(next(STARTS))) as logs:
        await logs.recover(
            lambda partition: CONFIG,
            lambda partition, topic_id: ours not in (None, topic_id),
            lambda partition: lies_in,
        )
        yield logs


def append(log: Log, *values: bytes) -> None:
    batch = build_batch([(1_000, None, value) for value in values])
    log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=Epoch(0), now_ms=1_000)


def log_of(logs: LogManager, partition: TopicPartition = A0) -> Log:
    log = logs.get(partition)
    assert log is not None
    return log


def values(log: Log) -> list[bytes | None]:
    return [value for _, value in read_values(log)]


NEW_VALUES = [b"n%d" % number for number in range(20)]


async def write_old(logs: LogManager) -> Log:
    """Have all three checkpoints say something of the old topic."""
    log = await logs.create(A0, OLD, CONFIG)
    for number in range(60):
        append(log, b"o%d" % number)
    await log.flush()
    log.update_high_watermark(log.end_offset)
    await log.delete_records_before(Offset(50))
    for write in (
        logs.checkpoint_recovery_points,
        logs.checkpoint_log_starts,
        logs.checkpoint_high_watermarks,
    ):
        await write()
    return log


async def write_new(logs: LogManager) -> None:
    log = await logs.create(A0, NEW, CONFIG)
    for value in NEW_VALUES:
        append(log, value)
    await log.flush()


def without_forgetting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def keep(self: Checkpoints, *arguments: object) -> None:
        """Leave the lines of an older log."""

    monkeypatch.setattr(Checkpoints, "forget", keep)


def without_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    def offset_of(
        self: Checkpoints, name: str, partition: TopicPartition, topic_id: UUID
    ) -> Offset | None:
        return self.lines(name).get(partition)

    monkeypatch.setattr(Checkpoints, "offset_of", offset_of)


# ---- checkpoints


@pytest.mark.parametrize("taken_out", [None, without_forgetting, without_ids])
@pytest.mark.parametrize("is_power_cut", [False, True])
@pytest.mark.parametrize("way", ["stray", "deleted"])
async def test_a_topic_made_again_keeps_its_records_after_a_kill(
    taken_out: object,
    is_power_cut: bool,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
) -> None:
    """Either of the two guards, that lines are forgotten and that they have ids, suffices."""
    for seed in SEEDS if taken_out is None else range(2):
        disk = await world_disk(seed)
        async with started(disk) as logs:
            await write_old(logs)
            if way == "deleted":
                await logs.delete(A0)
        if callable(taken_out):
            taken_out(monkeypatch)
        async with started(disk, ours=NEW) as logs:
            await write_new(logs)
        if is_power_cut:
            disk.crash()
        async with started(disk, ours=NEW) as logs:
            log = log_of(logs)
            assert (log.log_start_offset, log.high_watermark) == (0, 0)
            assert values(log) == NEW_VALUES


async def test_a_topic_made_again_keeps_its_records_on_a_real_disk(tmp_path: Path) -> None:
    path = str(tmp_path)
    disk = RealDisk([path])
    await formatted(disk, path)
    async with started(disk, path) as logs:
        await write_old(logs)
    async with started(disk, path, ours=NEW) as logs:
        await write_new(logs)
    async with started(disk, path, ours=NEW) as logs:
        assert values(log_of(logs)) == NEW_VALUES


@pytest.mark.parametrize("is_power_cut", [False, True])
async def test_a_death_at_any_step_leaves_each_line_to_its_own_topic(
    is_power_cut: bool, autojump_clock: MockClock
) -> None:
    """The old topic's log is set aside, the new one's made and checkpointed, by steps of the disk.

    Wherever the process ends: either the old log is as it was, or it is nothing to the new one.
    """
    step = 0
    while True:
        disk = await world_disk(step)
        async with started(disk) as logs:
            await write_old(logs)
        has_ended = await die_at(disk, step)
        if is_power_cut:
            disk.crash()
        async with started(disk, ours=NEW) as logs:
            log = await logs.create(A0, NEW, CONFIG)
            assert log.log_start_offset == 0
            assert values(log) == NEW_VALUES[: log.end_offset]
        if has_ended:
            assert step > 40
            return
        step += 1


async def die_at(disk: SimulatedDisk, step: int) -> bool:
    """Set the old log aside and write a new one; end the process at a step, or say it had none."""
    left = step
    is_dead = trio.Event()

    async def pause() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            is_dead.set()
            await trio.sleep_forever()

    disk._pause = pause
    has_ended = False

    async def live() -> None:
        nonlocal has_ended
        async with started(disk, ours=NEW) as logs:
            await write_new(logs)
            log_of(logs).update_high_watermark(Offset(20))
            await logs.checkpoint_high_watermarks()
            await logs.checkpoint_recovery_points()
            await logs.checkpoint_log_starts()
            has_ended = True
            is_dead.set()
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(live)
        await is_dead.wait()
        nursery.cancel_scope.cancel()
    disk.kill()
    disk._pause = trio.lowlevel.checkpoint
    return has_ended


async def test_a_line_that_does_not_say_its_topic_counts_only_after_a_clean_stop(
    autojump_clock: MockClock,
) -> None:
    """The directory of an older version or of Kafka has no ids beside its checkpoints."""
    for is_clean, log_start in ((False, 0), (True, 50)):
        disk = await world_disk()
        async with started(disk) as logs:
            await write_old(logs)
            if is_clean:
                await logs.shutdown_cleanly(broker_epoch=1)
        await disk.unlink("/one/checkpoint-topic-ids")
        for _ in range(2):
            async with started(disk) as logs:
                assert log_of(logs).log_start_offset == log_start
                assert log_of(logs).high_watermark == (60 if is_clean else 0)


@pytest.mark.parametrize("damage", [b"", b"0\n1\n", b"0\n1\na 0 x\n", b"\xff\n1"])
async def test_a_damaged_side_file_only_costs_work(
    damage: bytes, autojump_clock: MockClock
) -> None:
    disk = await world_disk()
    async with started(disk) as logs:
        await write_old(logs)
    await disk.write_atomically("/one/checkpoint-topic-ids", damage)
    async with started(disk) as logs:
        assert log_of(logs).end_offset == 60
        await logs.checkpoint_high_watermarks()
    async with started(disk) as logs:
        assert log_of(logs).end_offset == 60


async def test_a_thousand_topics_made_again_cost_one_write_of_each_checkpoint(
    autojump_clock: MockClock,
) -> None:
    disk = await world_disk()
    names = [TopicPartition("t", index) for index in range(20)]
    async with started(disk) as logs:
        for name in names:
            await logs.create(name, OLD, CONFIG)
        await trio.sleep(1.5)  # until their directories are durable
        for write in (logs.checkpoint_log_starts, logs.checkpoint_high_watermarks):
            await write()
        for name in names:
            await logs.delete(name)
        written: list[str] = []
        original = disk.write_atomically

        async def counted(path: str, data: bytes) -> None:
            written.append(path)
            await original(path, data)

        disk.write_atomically = counted  # type: ignore[method-assign]
        for name in names:
            await logs.create(name, NEW, CONFIG)
        assert sorted(path for path in written if "checkpoint" in path) == [
            "/one/log-start-offset-checkpoint",
            "/one/replication-offset-checkpoint",
        ]


async def test_a_full_disk_makes_no_log_that_older_lines_speak_of(
    autojump_clock: MockClock,
) -> None:
    disk = await world_disk()
    async with started(disk) as logs:
        await write_old(logs)
        await logs.delete(A0)
        disk.fail(DiskOperation.WRITE, errno.ENOSPC, path_part="checkpoint", times=1_000)
        with pytest.raises(RefusedError) as refused:
            await logs.create(A0, NEW, CONFIG)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert not disk.exists("/one/a-0")
        disk.heal()
        assert (await logs.create(A0, NEW, CONFIG)).end_offset == 0


async def test_a_checkpoint_during_a_clean_stop_forgets_no_closed_log(
    autojump_clock: MockClock,
) -> None:
    disk = await world_disk()
    async with started(disk) as logs:
        await write_old(logs)
        async with trio.open_nursery() as nursery:

            async def checkpoint_often() -> None:
                while True:
                    await logs.checkpoint_high_watermarks()
                    await logs.checkpoint_log_starts()
                    await trio.lowlevel.checkpoint()

            nursery.start_soon(checkpoint_often)
            await logs.shutdown_cleanly(broker_epoch=1)
            for _ in range(50):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    for name, offset in zip(CHECKPOINT_FILES[:3], (60, 50, 60), strict=True):
        found = parse_checkpoint(await disk.read_file(f"/one/{name}"))
        assert found.keys() == {A0}
        assert name == CHECKPOINT_FILES[0] or found[A0] == offset


# ---- tasks of a log that is deleted


def hold_fsync(disk: SimulatedDisk, path_part: str) -> tuple[trio.Event, trio.Event]:
    """Block the next fsync of a file; return the event of its start, and the event that releases
    it."""
    is_held, may_go = trio.Event(), trio.Event()
    original = disk.fsync

    async def held(file: DiskFile) -> None:
        if path_part in file.path and not is_held.is_set():
            is_held.set()
            await may_go.wait()
        await original(file)

    disk.fsync = held  # type: ignore[method-assign]
    return is_held, may_go


async def remove(log: Log) -> None:
    await log.delete_records_before(log.end_offset)


async def delete_old(log: Log) -> None:
    log.config = LogConfig(segment_bytes=1_000, retention_bytes=0)
    await log.delete_old_segments(1_000)


async def flush(log: Log) -> None:
    await log.flush()


async def truncate(log: Log) -> None:
    await log.truncate_to(Offset(1))


@pytest.mark.parametrize("work", [remove, delete_old, flush, truncate])
async def test_a_deleted_topics_task_leaves_its_successors_files_alone(
    work: Callable[[Log], Awaitable[None]], autojump_clock: MockClock
) -> None:
    disk = await world_disk()
    async with started(disk) as logs:
        log = await logs.create(A0, OLD, LogConfig(segment_bytes=1_000))
        log.state.owner = NO_OWNER
        log.assign_epoch(Epoch(7), Offset(0))
        for _ in range(4):
            append(log, b"x" * 800)
        log.update_high_watermark(log.end_offset)
        is_held, may_go = hold_fsync(disk, "/one/a-0/")
        is_freed = trio.Event()

        async def do_work() -> None:
            with suppress(RefusedError):
                await work(log)

        async def make_again() -> None:
            await logs.delete(A0)
            is_freed.set()
            await write_new(logs)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(do_work)
            await is_held.wait()
            nursery.start_soon(make_again)
            await trio.testing.wait_all_tasks_blocked()
            assert not is_freed.is_set()
            may_go.set()
        await logs.checkpoint_recovery_points()
    async with started(disk, ours=NEW) as logs:
        assert log_of(logs).last_epoch == 0
        assert values(log_of(logs)) == NEW_VALUES


async def test_a_flush_that_a_closing_overtakes_is_no_flush(autojump_clock: MockClock) -> None:
    disk = await world_disk()
    async with started(disk) as logs:
        log = await logs.create(A0, OLD, CONFIG)
        append(log, b"x")
        is_held, may_go = hold_fsync(disk, "/one/a-0/")
        refused: list[ErrorCode] = []

        async def flush_late() -> None:
            try:
                await log.flush()
            except RefusedError as error:
                refused.append(error.code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flush_late)
            await is_held.wait()
            log.abandon()
            may_go.set()
        assert refused == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert log.recovery_point == 0


async def test_deletions_on_one_disk_do_not_wait_for_a_task_on_another(
    autojump_clock: MockClock,
) -> None:
    disk = await world_disk(0, *DIRECTORIES)
    async with started(disk, *DIRECTORIES) as logs:
        one = await logs.create(A0, OLD, CONFIG, directory_id=UUID(int=500))
        append(one, b"x")
        is_held, _ = hold_fsync(disk, "/one/a-0/")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.flush)
            await is_held.wait()
            nursery.start_soon(logs.delete, A0)
            await trio.testing.wait_all_tasks_blocked()
            other = TopicPartition("b", 0)
            await logs.create(other, OLD, CONFIG, directory_id=UUID(int=501))
            await logs.delete(other)
            nursery.cancel_scope.cancel()


# ---- what a full disk does to a deletion


async def test_a_deletion_without_room_for_a_name_makes_room(autojump_clock: MockClock) -> None:
    disk = await world_disk()
    async with started(disk) as logs:
        append(await logs.create(A0, OLD, CONFIG), b"x" * 10_000)
        disk.capacity_bytes = disk.used_bytes
        original = disk.rename

        async def rename(source: str, target: str) -> None:
            if target.endswith("-delete"):
                raise OSError(errno.ENOSPC, "no room for a name", target)
            await original(source, target)

        disk.rename = rename  # type: ignore[method-assign]
        await logs.delete(A0)
        assert not disk.exists("/one/a-0")
        assert disk.used_bytes < disk.capacity_bytes - 10_000
        disk.heal()
        assert (await logs.create(A0, NEW, CONFIG)).end_offset == 0


async def test_what_another_topic_left_under_the_name_is_set_aside(
    autojump_clock: MockClock,
) -> None:
    """A creation without disk space, of a topic whose deletion went unnoticed."""
    disk = await world_disk()
    async with started(disk) as logs:
        disk.fail(DiskOperation.OPEN, errno.ENOSPC, path_part=".log")
        with pytest.raises(RefusedError):
            await logs.create(A0, OLD, CONFIG)
        assert disk.exists("/one/a-0")
        assert (await logs.create(A0, NEW, CONFIG)).topic_id == NEW
        assert any(name.endswith("-stray") for name in await disk.listdir("/one"))


async def test_a_creation_is_finished_where_it_was_begun(autojump_clock: MockClock) -> None:
    disk = await world_disk(0, *DIRECTORIES)
    async with started(disk, *DIRECTORIES) as logs:
        disk.fail(DiskOperation.OPEN, errno.ENOSPC, path_part=".log")
        with pytest.raises(RefusedError):
            await logs.create(A0, OLD, CONFIG, directory_id=UUID(int=501))
        assert (await logs.create(A0, OLD, CONFIG)).directory == "/two/a-0"


# ---- a log that may lie on a missing disk


@pytest.mark.parametrize(
    ("way", "directory_id"),
    [("offline", UUID(int=501)), ("offline", None), ("empty", UUID(int=501))],
)
async def test_while_a_directory_is_missing_only_replicas_that_hold_nothing_are_made(
    way: str, directory_id: UUID | None, autojump_clock: MockClock
) -> None:
    disk = await world_disk(0, *DIRECTORIES)
    async with started(disk, *DIRECTORIES) as logs:
        await logs.create(A0, OLD, CONFIG, directory_id=UUID(int=501))
        await logs.shutdown_cleanly(broker_epoch=1)
    if way == "empty":
        await disk.remove_tree("/two")  # not mounted: the mount point is on another disk
    else:
        disk.fail(DiskOperation.READ, errno.EIO, path_part="/two/meta.properties", times=1_000)
    async with started(disk, *DIRECTORIES, ours=OLD) as logs:
        with pytest.raises(RefusedError) as refused:
            await logs.create(A0, OLD, CONFIG, directory_id=directory_id, holds_nothing=False)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert not disk.exists("/one/a-0")
        assert (await logs.create(TopicPartition("b", 0), NEW, CONFIG)).end_offset == 0
        added = await logs.create(A0, OLD, CONFIG, directory_id=directory_id, holds_nothing=True)
        assert added.end_offset == 0


async def test_a_replica_whose_directory_was_taken_away_is_not_made_elsewhere(
    autojump_clock: MockClock,
) -> None:
    """No directory is offline: log.dirs no longer names it."""
    disk = await world_disk(0, *DIRECTORIES)
    async with started(disk, "/one") as logs:
        with pytest.raises(RefusedError, match="is not here"):
            await logs.create(A0, OLD, CONFIG, directory_id=UUID(int=501), holds_nothing=False)
        log = await logs.create(A0, OLD, CONFIG, directory_id=UUID(int=500), holds_nothing=False)
        assert log.directory == "/one/a-0"


@pytest.mark.parametrize("lies_in", [500, 501])
async def test_of_a_partition_in_two_directories_the_one_counts_that_the_cluster_knows(
    lies_in: int, autojump_clock: MockClock
) -> None:
    """A replica was made elsewhere while its disk was out; now the disk is back."""
    disk = await world_disk(0, *DIRECTORIES)
    for path in DIRECTORIES:
        async with started(disk, path) as logs:
            append(await logs.create(A0, OLD, CONFIG), b"v")
    async with started(disk, *DIRECTORIES, lies_in=UUID(int=lies_in)) as logs:
        kept, other = ("/one", "/two") if lies_in == 500 else ("/two", "/one")
        log = log_of(logs)
        assert (log.directory, values(log)) == (f"{kept}/a-0", [b"v"])
        assert log.recovery_point == log.end_offset, "the other may be the one that was flushed"
        await trio.sleep(1)
        assert [name for name in await disk.listdir(other) if name.startswith("a-0")] == []
