"""Compacted logs of a broker are cleaned in time, despite concurrent appends, moves and
deletions."""

import errno
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.jepsen.world.rng import SeededRng
from ottla.model.ids import Epoch, NodeId, Offset, ProducerId, TopicPartition
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.storage.cleaner import CleanerConfig
from ottla.storage.cleaner.cleaner_manager import CleaningState
from ottla.storage.cleaner.cleaning_task import CleanedGroup, CleaningDone, CleaningTask, Throttle
from ottla.storage.cleaner.in_place_driver import InPlaceRunner
from ottla.storage.directories.checkpoint_file import parse_checkpoint
from ottla.storage.directories.meta_properties import MetaProperties, format_meta_properties
from ottla.storage.log.log import Log
from ottla.storage.manager.log_manager_driver import LogManager, open_log_manager
from ottla.storage.producers.verification import UNGUARDED
from ottla.storage.segments.append_info import AppendOrigin
from ottla.storage.segments.files import LOG, file_name
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import ControlType, build_batch, build_end_transaction_marker
from tests.storage.log.workbench import read_values

pytestmark = pytest.mark.usefixtures("form")

A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)
TOPIC_ID, OTHER_ID = UUID(int=1000), UUID(int=1001)
COMPACTED = LogConfig(
    is_compacted=True,
    is_deleted_by_retention=False,
    segment_bytes=1_000,
    index_interval_bytes=0,
    segment_index_bytes=1_200,
    delete_retention_ms=0,
)
BACKOFF_S = 15
CHECKPOINT = "cleaner-offset-checkpoint"


class TrioClock:
    """Time is trio's, so that tests with a MockClock never wait."""

    def monotonic_ms(self) -> int:
        return int(trio.current_time() * 1_000)

    wall_ms = monotonic_ms


class SlowRunner:
    """Runs the passes in place, and holds each new segment back until it may be swapped in."""

    died_count = 0
    dead_count = 0

    def __init__(self, disk: SimulatedDisk) -> None:
        self._inner = InPlaceRunner(disk)
        self.tasks: list[CleaningTask] = []
        self.ended_count = 0
        self.error: Exception | None = None
        self.may_go_on = trio.Event()
        self.is_held = trio.Event()

    @asynccontextmanager
    async def run(
        self, task: CleaningTask, throttle: Throttle
    ) -> AsyncIterator[AsyncIterator[CleanedGroup | CleaningDone]]:
        self.tasks.append(task)
        try:
            if self.error is not None:
                raise self.error
            async with self._inner.run(task, throttle) as reports:
                yield self._held(reports)
        finally:
            self.ended_count += 1

    async def _held(
        self, reports: AsyncIterator[CleanedGroup | CleaningDone]
    ) -> AsyncIterator[CleanedGroup | CleaningDone]:
        async for report in reports:
            self.is_held.set()
            await self.may_go_on.wait()
            yield report

    async def end_idle(self) -> None:
        pass


async def formatted_disk(*paths: str) -> SimulatedDisk:
    disk = SimulatedDisk(SeededRng(0), pause=trio.lowlevel.checkpoint)
    for index, path in enumerate(paths):
        await disk.makedirs(path)
        identity = MetaProperties(
            cluster_id="c", node_id=NodeId(1), directory_id=UUID(int=500 + index)
        )
        await disk.write_atomically(f"{path}/meta.properties", format_meta_properties(identity))
    disk.flush_everything()
    return disk


@asynccontextmanager
async def recovered(
    disk: SimulatedDisk,
    *paths: str,
    cleaner: CleanerConfig = CleanerConfig(),  # noqa: B008 - a frozen value
    runner: SlowRunner | None = None,
    log_config: LogConfig = COMPACTED,
    ids: Mapping[TopicPartition, UUID] = MappingProxyType({}),
) -> AsyncIterator[LogManager]:
    config = BrokerConfig(node_id=NodeId(1), log_dirs=paths, cleaner=cleaner)
    async with open_log_manager(disk, config, TrioClock(), SeededRng(5), runner=runner) as logs:
        await logs.recover(lambda partition: log_config)
        yield logs


def append(log: Log, key: bytes, value: bytes | None) -> None:
    batch = build_batch([(log.end_offset + 1, key, value)])
    now_ms = TrioClock().wall_ms()
    log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=Epoch(0), now_ms=now_ms)
    log.update_high_watermark(log.end_offset)


async def filled(
    logs: LogManager, partition: TopicPartition = A0, *, topic_id: UUID = TOPIC_ID, count: int = 60
) -> Log:
    """Values of four keys over several segments, the closed ones flushed."""
    log = await logs.create(partition, topic_id, COMPACTED)
    await log.keep()
    for number in range(count):
        append(log, b"k%d" % (number % 4), b"v%d" % number)
    await log.flush(log.unflushed_roll_offset)
    return log


def last_values(log: Log) -> dict[bytes, bytes | None]:
    """The state that a reader from 0 ends with."""
    values = dict[bytes, bytes | None]()
    for offset, value in read_values(log):
        values[b"k%d" % (offset % 4)] = value
    return values


async def one_round() -> None:
    await trio.sleep(BACKOFF_S + 1)


async def lines(disk: SimulatedDisk, path: str = "/one") -> Mapping[TopicPartition, Offset]:
    return parse_checkpoint(await disk.read_file(f"{path}/{CHECKPOINT}"))


async def test_a_dirty_log_is_cleaned_and_keeps_the_last_value_of_every_key(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        log = await filled(logs)
        before, active = last_values(log), log.segments[-1].base_offset

        await one_round()

        assert len(read_values(log)) < 30
        assert last_values(log) == before
        assert log.first_dirty_offset == active
        assert await lines(disk) == {A0: active}
        assert logs.cleaner.figures.cleaning_count == 1
        assert logs.cleaner.manager.state_of(A0) is CleaningState.NONE
        await one_round()
        assert logs.cleaner.figures.cleaning_count == 1
    disk.crash()
    async with recovered(disk, "/one") as logs:
        again = logs.get(A0)
        assert again is not None
        assert again.first_dirty_offset == active
        assert last_values(again).keys() <= before.keys()


async def test_a_due_log_is_cleaned_beside_a_hundred_dirtier_ones_at_rest(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/d")
    async with recovered(disk, "/d") as logs:
        log = await filled(logs)
        await trio.sleep(BACKOFF_S + 1)
        clean_to = log.first_dirty_offset
        at_rest = replace(COMPACTED, min_cleanable_dirty_ratio=1.0)
        for number in range(101):
            other = await filled(logs, TopicPartition("rest", number), count=30)
            other.config = at_rest
        log.config = replace(COMPACTED, min_cleanable_dirty_ratio=0.01)
        for number in range(30):
            append(log, b"k%d" % (number % 4), b"w%d" % number)
        await log.flush(log.unflushed_roll_offset)
        await trio.sleep(BACKOFF_S + 1)

        assert log.first_dirty_offset > clean_to > 0


async def test_a_log_of_another_policy_is_left_alone(autojump_clock: MockClock) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        log = await filled(logs)
        log.config = replace(COMPACTED, is_compacted=False)

        await one_round()

        assert len(read_values(log)) == 60


async def test_a_truncation_ends_the_cleaning_under_way_and_takes_back_what_counts_for_clean(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    runner = SlowRunner(disk)
    async with recovered(disk, "/one", runner=runner) as logs:
        log = await filled(logs)
        await runner.is_held.wait()
        assert logs.cleaner.manager.state_of(A0) is CleaningState.CLEANING

        await log.truncate_to(Offset(25))

        assert runner.ended_count == 1
        assert not log.is_being_cleaned
        assert logs.cleaner.manager.state_of(A0) is CleaningState.NONE
        assert not [name for name in await disk.listdir("/one/a-0") if ".cleaned" in name]
        assert len(read_values(log)) == 25
        for number in range(25, 60):
            append(log, b"k%d" % (number % 4), b"new")
        await log.flush(log.unflushed_roll_offset)
        runner.may_go_on.set()
        await one_round()
        assert log.first_dirty_offset > 25
        await log.truncate_to(Offset(10))
        assert log.first_dirty_offset <= 10
        assert (await lines(disk))[A0] <= 10
        assert log.end_offset <= 10


async def test_a_topic_that_is_deleted_while_it_is_cleaned_leaves_nothing_to_its_successor(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    runner = SlowRunner(disk)
    async with recovered(disk, "/one", runner=runner) as logs:
        await filled(logs)
        await runner.is_held.wait()

        await logs.delete(A0)
        assert runner.ended_count == 1
        log = await logs.create(A0, OTHER_ID, COMPACTED)
        await log.keep()

        assert not [name for name in await disk.listdir("/one/a-0") if ".cleaned" in name]
        assert log.first_dirty_offset == 0
        runner.may_go_on.set()
        await one_round()
        assert log.end_offset == 0


async def test_damage_sets_a_log_aside_with_its_place_and_touches_nothing(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        log = await filled(logs)
        other = await filled(logs, B0, topic_id=OTHER_ID)
        damaged = log.segments[1]
        byte = damaged.file.pread(80, 1)
        damaged.file.pwrite(80, [bytes([byte[0] ^ 1])])
        names = await disk.listdir("/one/a-0")

        await one_round()

        reason = logs.cleaner.manager.uncleanable[A0]
        assert file_name(damaged.base_offset, LOG) in reason
        assert await disk.listdir("/one/a-0") == names
        assert len(read_values(other)) < 30
        await trio.sleep(3_600)
        assert logs.cleaner.figures.failure_count == 1
        damaged.file.pwrite(80, [byte])
        assert logs.cleaner.retry(A0)
        await one_round()
        assert logs.cleaner.manager.uncleanable == {}
        assert len(read_values(log)) < 30


async def test_a_full_disk_leaves_the_old_segments_and_the_log_is_cleaned_later(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        log = await filled(logs)
        fault = disk.fail(DiskOperation.WRITE, errno.ENOSPC, path_part=".cleaned", times=2)

        await one_round()

        assert not fault.times_left or logs.cleaner.figures.failure_count
        assert log.failure is None
        assert len(read_values(log)) == 60
        failure = logs.cleaner.manager.failure_of(A0)
        assert failure is not None
        assert failure.retry_at_ms is not None
        disk.heal()
        await trio.sleep(120)
        assert len(read_values(log)) < 30
        assert logs.cleaner.manager.failure_of(A0) is None


async def test_damage_in_what_was_cleaned_before_is_named_and_nothing_is_touched(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        log = await filled(logs)
        await one_round()
        damaged = log.segments[0]
        assert damaged.base_offset < log.first_dirty_offset
        byte = damaged.file.pread(40, 1)
        damaged.file.pwrite(40, [bytes([byte[0] ^ 1])])
        for number in range(60):
            append(log, b"k%d" % (number % 4), b"later")
        await log.flush(log.unflushed_roll_offset)
        first_dirty = log.first_dirty_offset
        files = {name: await disk.read_file(f"/one/a-0/{name}") for name in await log_files(disk)}

        await one_round()

        reason = logs.cleaner.manager.uncleanable[A0]
        assert f"/one/a-0/{file_name(damaged.base_offset, LOG)}: position 0" in reason
        assert {
            name: await disk.read_file(f"/one/a-0/{name}") for name in await log_files(disk)
        } == files
        assert log.first_dirty_offset == first_dirty
        ((partition, dirty_bytes),) = logs.cleaner.uncleanable()
        assert (partition, dirty_bytes > 0) == (A0, True)


async def log_files(disk: SimulatedDisk) -> list[str]:
    return sorted(name for name in await disk.listdir("/one/a-0") if LOG in name)


async def test_a_disk_that_is_full_in_the_middle_keeps_what_was_swapped_in_and_the_rest_as_it_was(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        log = await filled(logs)
        before, third = last_values(log), log.segments[2]
        size, sizes = log.segments[0].size_bytes, [each.size_bytes for each in log.segments[2:]]
        name = file_name(third.base_offset, LOG)
        disk.fail(DiskOperation.WRITE, errno.ENOSPC, path_part=f"{name}.cleaned", times=99)

        await one_round()

        failure = logs.cleaner.manager.failure_of(A0)
        assert failure is not None
        assert failure.retry_at_ms is not None
        assert log.segments[0].size_bytes < size
        assert [
            each.size_bytes for each in log.segments if each.base_offset >= third.base_offset
        ] == sizes
        assert last_values(log) == before
        assert log.first_dirty_offset == 0
        assert not [each for each in await disk.listdir("/one/a-0") if ".cleaned" in each]
        disk.heal()
        await trio.sleep(120)
        assert last_values(log) == before
        assert len(read_values(log)) < 30


async def test_a_disk_that_fails_while_a_log_is_cleaned_takes_its_directory_offline(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one", "/two")
    async with recovered(disk, "/one", "/two") as logs:
        log = await filled(logs)
        directory = logs.directory_of(A0)
        assert directory is not None
        disk.fail(DiskOperation.FSYNC, errno.EIO, path_part=".cleaned")

        await one_round()

        assert not directory.is_live
        assert log.failure is not None
        assert A0 in logs.offline


async def test_an_unexpected_error_costs_one_cleaning(autojump_clock: MockClock) -> None:
    disk = await formatted_disk("/one")
    runner = SlowRunner(disk)
    runner.error = ZeroDivisionError("oops")
    runner.may_go_on.set()
    async with recovered(disk, "/one", runner=runner) as logs:
        log = await filled(logs)
        await one_round()
        assert logs.cleaner.figures.failure_count == 1
        runner.error = None
        await trio.sleep(60)
        assert len(read_values(log)) < 30


async def test_all_cleanings_together_read_and_write_no_faster_than_they_may(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    config = CleanerConfig(io_bytes_per_second_max=100.0, backoff_ms=1_000)
    async with recovered(disk, "/one", cleaner=config) as logs:
        log = await filled(logs)
        size = log.size_bytes
        await trio.sleep(size / 100)
        assert logs.cleaner.figures.cleaning_count == 0
        await trio.sleep(size / 20)
        assert logs.cleaner.figures.cleaning_count == 1


async def test_as_many_logs_are_cleaned_at_once_as_there_are_threads(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    runner = SlowRunner(disk)
    async with recovered(disk, "/one", runner=runner) as logs:
        for number in range(4):
            partition = TopicPartition("t", number)
            await filled(logs, partition)
        await one_round()
        assert len(runner.tasks) == 1

        logs.cleaner.reconfigure(thread_count=2)
        await one_round()
        assert len(runner.tasks) == 2
        assert runner.tasks[1].map_bytes * 2 == runner.tasks[0].map_bytes
        logs.cleaner.reconfigure(thread_count=1)
        runner.may_go_on.set()
        await one_round()
        assert logs.cleaner.figures.cleaning_count == 4


async def test_a_log_that_moves_is_cleaned_when_it_has_arrived(autojump_clock: MockClock) -> None:
    disk = await formatted_disk("/one", "/two")
    runner = SlowRunner(disk)
    async with recovered(disk, "/one", "/two", runner=runner) as logs:
        await filled(logs)
        source = logs.directory_of(A0)
        await runner.is_held.wait()
        target = next(each for each in logs.directories if each is not source)

        logs.start_move(A0, target)
        await trio.sleep(5)

        assert runner.ended_count == 1
        assert logs.directory_of(A0) is target
        log = logs.get(A0)
        assert log is not None
        assert log.first_dirty_offset == 0
        runner.may_go_on.set()
        await log.flush(log.unflushed_roll_offset)
        await trio.sleep(60)
        assert runner.tasks[-1].directory == f"{target.path}/a-0"
        assert len(read_values(log)) < 30


async def test_a_stop_ends_the_cleaning_under_way_and_the_next_start_cleans_on(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    runner = SlowRunner(disk)
    async with recovered(disk, "/one", runner=runner) as logs:
        await filled(logs)
        await runner.is_held.wait()
        await logs.shutdown_cleanly(7)
        assert runner.ended_count == 1
    disk.crash()
    async with recovered(disk, "/one") as logs:
        log = logs.get(A0)
        assert log is not None
        assert logs.previous_broker_epoch == 7
        await one_round()
        assert len(read_values(log)) < 30


async def test_what_is_asked_for_is_cleaned_at_once(autojump_clock: MockClock) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        log = await filled(logs)
        log.config = replace(COMPACTED, min_cleanable_dirty_ratio=1.0)
        await one_round()
        assert len(read_values(log)) == 60

        logs.cleaner.request(A0)
        await trio.sleep(1)

        assert len(read_values(log)) < 30


async def test_the_oldest_dirty_record_makes_a_log_due_also_after_a_restart(
    autojump_clock: MockClock,
) -> None:
    config = replace(COMPACTED, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=100_000)
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one", log_config=config) as logs:
        log = await filled(logs)
        log.config = config
        await logs.shutdown_cleanly(1)
    async with recovered(disk, "/one", log_config=config) as logs:
        log_again = logs.get(A0)
        assert log_again is not None
        await trio.sleep(60)
        assert len(read_values(log_again)) == 60
        await trio.sleep(60)
        assert len(read_values(log_again)) < 30


async def test_what_retention_passed_over_is_removed_after_the_cleaning(
    autojump_clock: MockClock,
) -> None:
    config = replace(COMPACTED, is_deleted_by_retention=True, retention_ms=1_000)
    disk = await formatted_disk("/one")
    runner = SlowRunner(disk)
    async with recovered(disk, "/one", runner=runner) as logs:
        log = await filled(logs)
        log.config = config
        await runner.is_held.wait()
        assert await log.delete_old_segments(TrioClock().wall_ms() + 10_000) == 0

        runner.may_go_on.set()
        await one_round()

        assert log.log_start_offset == log.end_offset


async def test_a_cleaning_begins_only_when_a_start_would_not_check_what_is_cleaned(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    runner = SlowRunner(disk)
    async with recovered(disk, "/one", runner=runner) as logs:
        await filled(logs)
        await runner.is_held.wait()

        data = await disk.read_file("/one/recovery-point-offset-checkpoint")

        assert parse_checkpoint(data)[A0] >= runner.tasks[0].end_offset


@pytest.mark.parametrize("seed", range(8))
async def test_a_power_cut_while_logs_are_cleaned_loses_no_key(
    autojump_clock: MockClock, seed: int
) -> None:
    disk = await formatted_disk("/one")
    expected: dict[bytes, bytes | None] = {}
    async with recovered(disk, "/one") as logs:
        log = await filled(logs)
        await log.flush()
        expected = last_values(log)
        logs.cleaner.request(A0)
        for _ in range(seed * 9):
            await trio.lowlevel.checkpoint()
        disk.crash()
    async with recovered(disk, "/one") as logs:
        log_again = logs.get(A0)
        assert log_again is not None
        assert last_values(log_again) == expected
        log_again.update_high_watermark(log_again.end_offset)
        await one_round()
        assert last_values(log_again) == expected
        assert len(read_values(log_again)) < 30


async def test_transactions_that_a_start_has_not_read_yet_hinder_no_cleaning(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        log = await logs.create(A0, TOPIC_ID, COMPACTED)
        await log.keep()
        for number in range(20):
            batch = build_batch(
                [(1, b"k", b"v")],
                producer_id=ProducerId(9),
                producer_epoch=0,
                base_sequence=number,
                is_transactional=True,
            )
            log.append_as_leader(
                memoryview(bytearray(batch)),
                leader_epoch=Epoch(0),
                now_ms=1,
                guard=UNGUARDED,
            )
            marker = build_end_transaction_marker(
                ControlType.ABORT,
                timestamp_ms=1,
                producer_id=ProducerId(9),
                producer_epoch=0,
                coordinator_epoch=Epoch(0),
            )
            log.append_as_leader(
                memoryview(bytearray(marker)),
                leader_epoch=Epoch(0),
                now_ms=1,
                origin=AppendOrigin.COORDINATOR,
            )
        await log.flush()
        disk.crash()
    async with recovered(disk, "/one") as logs:
        log_again = logs.get(A0)
        assert log_again is not None
        log_again.update_high_watermark(log_again.end_offset)
        await one_round()
        assert logs.cleaner.figures.failure_count == 0
        assert logs.cleaner.figures.cleaning_count > 0
