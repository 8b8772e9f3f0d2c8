"""A log moves to another directory while it serves; whatever ends the move loses nothing."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

import pytest
import trio

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.jepsen.world.rng import SeededRng
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset, ProducerId, TopicPartition
from ottla.model.limits import KIB
from ottla.model.settings.broker import BrokerConfig
from ottla.storage.directories.log_directory_driver import LogDirectory
from ottla.storage.directories.meta_properties import MetaProperties, format_meta_properties
from ottla.storage.log.log import Log
from ottla.storage.manager.log_manager_driver import LogManager, open_log_manager
from ottla.storage.producers.verification import UNGUARDED
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import build_batch
from tests.search_length import length
from tests.storage.log.workbench import read_values

A0 = TopicPartition("a", 0)
TOPIC_ID = UUID(int=1000)
CONFIG = LogConfig(segment_bytes=900 * KIB, file_delete_delay_ms=0)
ONE, TWO = UUID(int=500), UUID(int=501)
VALUE_BYTES = 40 * KIB
BATCHES = 40
"""More than one segment, and many pieces of a copy."""


class TrioClock:
    """Time is trio's, so that tests with a MockClock never wait."""

    def monotonic_ms(self) -> int:
        return int(trio.current_time() * 1_000)

    wall_ms = monotonic_ms


class Crash:
    """Ends whatever runs at a chosen call of the disk."""

    def __init__(self) -> None:
        self.countdown = -1
        self.calls = 0
        self.scope = trio.CancelScope()

    async def pause(self) -> None:
        self.calls += 1
        if self.countdown >= 0:
            self.countdown -= 1
            if self.countdown < 0:
                self.scope.cancel()
        await trio.lowlevel.checkpoint()


async def formatted_disk(crash: Crash | None = None, seed: int = 0) -> SimulatedDisk:
    disk = SimulatedDisk(SeededRng(seed), pause=(crash or Crash()).pause)
    for path, directory_id in (("/one", ONE), ("/two", TWO)):
        await disk.makedirs(path)
        identity = MetaProperties(cluster_id="c", node_id=NodeId(1), directory_id=directory_id)
        await disk.write_atomically(f"{path}/meta.properties", format_meta_properties(identity))
    disk.flush_everything()
    return disk


@asynccontextmanager
async def recovered(
    disk: SimulatedDisk, known: Callable[[], UUID] = lambda: ONE
) -> AsyncIterator[LogManager]:
    config = BrokerConfig(node_id=NodeId(1), log_dirs=("/one", "/two"))
    async with open_log_manager(disk, config, TrioClock(), SeededRng(5)) as logs:
        await logs.recover(lambda at: CONFIG, directory_id_of=lambda at: known())
        yield logs


def append(log: Log, number: int, *, size: int = VALUE_BYTES, epoch: int = 0) -> None:
    batch = build_batch([(1_000 + number, None, b"%d" % number + bytes(size))])
    log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=Epoch(epoch), now_ms=1_000)


def numbers(log: Log) -> list[int]:
    return [int(value.partition(b"\0")[0]) for _, value in read_values(log) if value is not None]


def two(logs: LogManager) -> LogDirectory:
    return logs.directories[1]


def place_of(logs: LogManager) -> str:
    directory = logs.directory_of(A0)
    assert directory is not None
    return directory.path


def names(disk: SimulatedDisk, path: str) -> list[str]:
    """The directories of partitions in a log directory."""
    files = [name.removeprefix(f"{path}/") for name in disk.files_in(path)]
    return sorted({name.split("/")[0] for name in files if "/" in name})


def served(logs: LogManager) -> Log:
    log = logs.get(A0)
    assert log is not None
    return log


async def moved(logs: LogManager) -> None:
    """Wait until no move is left."""
    while len(logs.moves):
        await trio.sleep(0.1)
    await trio.sleep(0.1)


async def filled(logs: LogManager) -> Log:
    log = await logs.create(A0, TOPIC_ID, CONFIG, directory_id=ONE)
    for number in range(BATCHES):
        append(log, number)
    log.update_high_watermark(log.end_offset)
    return log


async def test_a_log_moves_whole_and_its_old_files_go(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        old = await filled(logs)
        logs.moves.start(A0, two(logs))
        (move,) = logs.moves.into(two(logs))
        assert move.lag == BATCHES
        await moved(logs)

        log = served(logs)
        assert log is not old
        assert (place_of(logs), log.directory) == ("/two", "/two/a-0")
        assert numbers(log) == list(range(BATCHES))
        assert log.high_watermark == log.recovery_point == log.end_offset == BATCHES
        assert (names(disk, "/one"), names(disk, "/two")) == ([], ["a-0"])
        append(log, BATCHES)
        assert logs.offline == {}


async def test_what_is_appended_meanwhile_moves_too(autojump_clock: trio.testing.MockClock) -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        await filled(logs)
        logs.moves.start(A0, two(logs))
        count = BATCHES
        while place_of(logs) == "/one":
            append(served(logs), count)
            count += 1
            await trio.sleep(0.001)
        append(served(logs), count)

        assert count > BATCHES
        assert numbers(served(logs)) == list(range(count + 1))


async def test_a_flush_under_way_delays_the_change_over_and_nothing_else(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs, trio.open_nursery() as nursery:
        await filled(logs)

        async def flush_without_end() -> None:
            while place_of(logs) == "/one":
                append(served(logs), served(logs).end_offset)
                await served(logs).flush()
                await trio.sleep(0.001)

        logs.moves.start(A0, two(logs))
        nursery.start_soon(flush_without_end)
        await moved(logs)

        assert place_of(logs) == "/two"
        assert numbers(served(logs)) == list(range(served(logs).end_offset))


async def test_what_a_truncation_takes_is_not_in_the_copy(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        log = await filled(logs)
        logs.moves.start(A0, two(logs))
        (move,) = logs.moves.into(two(logs))
        while move.copy is None or move.copy.end_offset <= 12:
            await trio.lowlevel.checkpoint()
        assert place_of(logs) == "/one"
        log.state.high_watermark = Offset(5)
        await log.truncate_to(Offset(10))
        for number in range(100, 100 + BATCHES):
            append(log, number, epoch=1)
        await moved(logs)

        assert place_of(logs) == "/two"
        assert numbers(served(logs)) == [*range(10), *range(100, 100 + BATCHES)]
        assert served(logs).end_offset_for_epoch(Epoch(0)).offset == 10


async def test_where_it_begins_and_what_wrote_nothing_move_too(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        log = await filled(logs)
        await log.delete_records_before(Offset(30))
        logs.moves.start(A0, two(logs))
        (move,) = logs.moves.into(two(logs))
        while move.copy is None:
            await trio.lowlevel.checkpoint()
        await log.delete_records_before(Offset(33))
        log.assign_epoch(Epoch(4), log.end_offset)
        await moved(logs)

        assert served(logs).log_start_offset == 33
        assert served(logs).last_epoch == 4
        assert numbers(served(logs)) == list(range(33, BATCHES))


async def test_a_copy_keeps_no_segments_that_retention_deleted_from_its_source(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        log = await filled(logs)
        copied_bytes, reported = [], trio.Event()

        async def throttle(size: int) -> None:
            """Hold the throttle once most is copied, until retention has run."""
            (move,) = logs.moves.into(two(logs))
            if move.copy is None or move.copy.end_offset < BATCHES - 12 or reported.is_set():
                return
            copied_bytes.append(move.copy.size_bytes)
            await log.delete_records_before(Offset(BATCHES - 15))
            reported.set()

        async def announce(partition: TopicPartition, directory_id: UUID) -> None:
            (move,) = logs.moves.into(two(logs))
            assert move.copy is not None
            copied_bytes.append(move.copy.size_bytes)

        logs.moves.throttle, logs.moves.announce = throttle, announce
        logs.moves.start(A0, two(logs))
        await moved(logs)

        assert served(logs).log_start_offset == BATCHES - 15
        assert numbers(served(logs)) == list(range(BATCHES - 15, BATCHES))
        before, after = copied_bytes
        assert after < before


async def test_the_local_part_of_a_tiered_log_moves_with_both_starts_and_all_epochs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        tiered = replace(CONFIG, is_tiered=True, local_retention_bytes=600 * KIB)
        log = await logs.create(A0, TOPIC_ID, tiered, directory_id=ONE)
        await log.keep()  # otherwise it does not roll
        for number in range(BATCHES):
            batch = build_batch(
                [(1_000, None, b"%d" % number + bytes(VALUE_BYTES))],
                producer_id=ProducerId(7 + number % 30),
                producer_epoch=0,
                base_sequence=number // 30,
            )
            log.append_as_leader(
                memoryview(bytearray(batch)),
                leader_epoch=Epoch(number // 8),
                now_ms=1_000,
                guard=UNGUARDED,
            )
        log.update_high_watermark(log.end_offset)
        await log.delete_records_before(Offset(3))
        producers = log.active_producers.keys()
        logs.moves.start(A0, two(logs))
        (move,) = logs.moves.into(two(logs))
        while move.copy is None:
            await trio.lowlevel.checkpoint()
        log.copied_offset = Offset(BATCHES - 15)  # after the copy has begun at the former start
        assert await log.delete_local_segments(1_000) == 1
        await moved(logs)

        copy = served(logs)
        assert copy is not log
        assert (copy.log_start_offset, copy.copied_offset) == (3, BATCHES - 15)
        assert copy.local_start_offset == log.local_start_offset > 3
        assert copy.epochs() == log.epochs() and copy.epochs()[0] == (0, 3)
        assert copy.active_producers.keys() == producers
        values = read_values(copy, copy.local_start_offset)
        assert [offset for offset, _ in values] == list(range(copy.local_start_offset, BATCHES))


async def test_the_new_directory_is_reported_before_the_partition_switches(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        await filled(logs)
        reported: list[tuple[TopicPartition, UUID, str]] = []

        async def announce(partition: TopicPartition, directory_id: UUID) -> None:
            await trio.sleep(5)
            reported.append((partition, directory_id, place_of(logs)))

        logs.moves.announce = announce
        logs.moves.start(A0, two(logs))
        await moved(logs)

        assert reported == [(A0, TWO, "/one")]
        assert place_of(logs) == "/two"


async def test_the_reported_directory_is_reverted_when_the_move_ends(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        await filled(logs)
        reported: list[UUID] = []

        async def announce(partition: TopicPartition, directory_id: UUID) -> None:
            reported.append(directory_id)
            await trio.sleep_forever()

        logs.moves.announce = announce
        logs.moves.withdraw = lambda partition, directory_id: reported.append(directory_id)
        logs.moves.start(A0, two(logs))
        while not reported:
            await trio.sleep(0.1)
        logs.moves.start(A0, logs.directories[0])
        await moved(logs)

        assert reported == [TWO, ONE]
        assert (names(disk, "/one"), names(disk, "/two")) == (["a-0"], [])


async def test_a_wish_for_where_it_is_ends_the_move(autojump_clock: trio.testing.MockClock) -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        await filled(logs)
        logs.moves.start(A0, two(logs))
        await trio.lowlevel.checkpoint()
        logs.moves.start(A0, logs.directories[0])
        await moved(logs)

        assert place_of(logs) == "/one"
        assert (names(disk, "/one"), names(disk, "/two")) == (["a-0"], [])
        assert numbers(served(logs)) == list(range(BATCHES))


async def test_a_topic_that_is_deleted_leaves_nothing_in_either_directory(
    autojump_clock: trio.testing.MockClock,
) -> None:
    for turns in range(0, 120, 7):
        disk = await formatted_disk()
        async with recovered(disk) as logs:
            await filled(logs)
            logs.moves.start(A0, two(logs))
            for _ in range(turns):
                await trio.lowlevel.checkpoint()
            await logs.delete(A0)
            assert not len(logs.moves)
            again = await logs.create(A0, UUID(int=2000), CONFIG, directory_id=TWO)
            append(again, 7)
            await trio.sleep(5)

            assert (names(disk, "/one"), names(disk, "/two")) == ([], ["a-0"])
            assert numbers(served(logs)) == [7]


@pytest.mark.parametrize("path", ["/one", "/two"])
async def test_a_disk_that_fails_ends_the_move_and_takes_its_own_logs_alone(
    path: str, autojump_clock: trio.testing.MockClock
) -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        await filled(logs)
        logs.moves.start(A0, two(logs))
        (move,) = logs.moves.into(two(logs))
        while move.copy is None:
            await trio.lowlevel.checkpoint()
        operation = DiskOperation.READ if path == "/one" else DiskOperation.WRITE
        disk.fail(operation, path_part=f"{path}/a-0", times=9)
        await moved(logs)

        assert [one.path for one in logs.directories if not one.is_live] == [path]
        if path == "/one":
            with pytest.raises(RefusedError) as refused:
                logs.get(A0)
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        else:
            assert numbers(served(logs)) == list(range(BATCHES))


async def test_a_move_goes_on_after_a_stop(autojump_clock: trio.testing.MockClock) -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        await filled(logs)
        logs.moves.start(A0, two(logs))
        (move,) = logs.moves.into(two(logs))
        while move.copy is None or move.copy.end_offset < 5:
            await trio.lowlevel.checkpoint()
        await logs.shutdown_cleanly(broker_epoch=3)
    async with recovered(disk) as logs:
        assert place_of(logs) == "/one"
        await moved(logs)

        assert place_of(logs) == "/two"
        assert numbers(served(logs)) == list(range(BATCHES))
        assert (names(disk, "/one"), names(disk, "/two")) == ([], ["a-0"])


async def crash_at(call: int, seed: int, *, is_power_cut: bool) -> bool:
    """Move under load, and crash at a call of the disk; return whether it came to that."""
    crash = Crash()
    disk = await formatted_disk(crash, seed)
    known = ONE
    safe = BATCHES
    with crash.scope:
        async with recovered(disk) as logs:
            log = await filled(logs)
            await log.flush()
            await logs.checkpoint_log_starts()

            async def announce(partition: TopicPartition, directory_id: UUID) -> None:
                nonlocal known
                await trio.lowlevel.checkpoint()
                known = directory_id

            logs.moves.announce = announce
            crash.countdown = call
            logs.moves.start(A0, two(logs))
            while len(logs.moves):
                append(served(logs), served(logs).end_offset, size=4_000)
                if not is_power_cut:
                    safe = served(logs).end_offset
                elif safe % 3 == 0:
                    await served(logs).flush()
                    safe = served(logs).recovery_point
                await trio.sleep(0.001)
    if is_power_cut:
        disk.crash()
    else:
        disk.kill()
    crash.countdown = -1
    is_crashed, crash.scope = crash.scope.cancelled_caught, trio.CancelScope()
    async with recovered(disk, lambda: known) as logs:
        found = numbers(served(logs))
        assert found[:safe] == list(range(safe)), (call, place_of(logs))
        assert found == list(range(len(found)))
        await moved(logs)
        assert numbers(served(logs)) == found
        await trio.sleep(1)
        assert sorted(names(disk, "/one") + names(disk, "/two")) == ["a-0"]
    return is_crashed


@pytest.mark.parametrize("is_power_cut", [False, True])
async def test_a_crash_at_any_call_of_the_disk_loses_nothing(
    is_power_cut: bool, autojump_clock: trio.testing.MockClock
) -> None:
    call = int(is_power_cut)
    while await crash_at(call, seed=call, is_power_cut=is_power_cut):
        call += length(4, 2)
    assert call > 60


async def test_of_two_logs_that_part_the_newer_counts_and_the_other_is_kept_aside(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        await filled(logs)
        await logs.shutdown_cleanly(broker_epoch=3)
    await disk.rename("/one/a-0", "/two/a-0")
    async with recovered(disk) as logs:
        moved_by_hand = served(logs)
        assert place_of(logs) == "/two"
        moved_by_hand.state.high_watermark = Offset(5)
        await moved_by_hand.delete_records_before(Offset(4))
        await moved_by_hand.truncate_to(Offset(10))
        append(moved_by_hand, 100, epoch=1)
        await logs.shutdown_cleanly(broker_epoch=4)
    async with recovered(disk) as logs:
        other = await logs.create(TopicPartition("b", 0), UUID(int=9), CONFIG, directory_id=ONE)
        other.topic_id = TOPIC_ID
        for number in range(BATCHES):
            append(other, number)
        await other.flush()
    await disk.write_atomically(
        "/one/b-0/partition.metadata", await disk.read_file("/two/a-0/partition.metadata")
    )
    await disk.rename("/one/b-0", "/one/a-0")
    async with recovered(disk) as logs:
        assert place_of(logs) == "/two"
        assert numbers(served(logs)) == [*range(4, 10), 100]
        assert [name.rpartition("-")[2] for name in names(disk, "/one")] == ["stray"]
