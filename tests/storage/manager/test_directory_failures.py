"""One failed file fails its directory, in every kind of file and in every task; no other."""

import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple
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
from ottla.storage.directories.meta_properties import MetaProperties, format_meta_properties
from ottla.storage.disk.slice import SliceError
from ottla.storage.log.log import Log
from ottla.storage.manager.log_manager_driver import LogManager, open_log_manager
from ottla.storage.segments.append_info import AppendOrigin
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import build_batch

A0 = TopicPartition("a", 0)
A1 = TopicPartition("a", 1)
TOPIC_ID = UUID(int=1000)
CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=0)


class TrioClock:
    """Time is trio's, so that tests with a MockClock never wait."""

    def monotonic_ms(self) -> int:
        return int(trio.current_time() * 1_000)

    wall_ms = monotonic_ms


class Bench(NamedTuple):
    """Two directories with a log each: /one/a-0, which the tests strike, and /two/a-1."""

    disk: SimulatedDisk
    logs: LogManager
    struck: Log
    other: Log
    failed: list[str]


@asynccontextmanager
async def opened() -> AsyncIterator[Bench]:
    disk = SimulatedDisk(SeededRng(0), pause=trio.lowlevel.checkpoint)
    paths = ("/one", "/two")
    for index, path in enumerate(paths):
        await disk.makedirs(path)
        identity = MetaProperties(
            cluster_id="c", node_id=NodeId(1), directory_id=UUID(int=500 + index)
        )
        await disk.write_atomically(f"{path}/meta.properties", format_meta_properties(identity))
    config = BrokerConfig(node_id=NodeId(1), log_dirs=paths)
    async with open_log_manager(disk, config, TrioClock(), SeededRng(5)) as logs:
        await logs.recover(lambda partition: CONFIG)
        struck = await logs.create(A0, TOPIC_ID, CONFIG)
        other = await logs.create(A1, TOPIC_ID, CONFIG)
        await trio.sleep(1)  # their directories are durable: they may roll
        failed: list[str] = []
        logs.on_directory_failed = lambda directory: failed.append(directory.path)
        yield Bench(disk, logs, struck, other, failed)


def append(log: Log, size: int = 100, epoch: int = 0) -> None:
    batch = build_batch([(1_000, None, bytes(size))])
    log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=Epoch(epoch), now_ms=1_000)


async def an_append(bench: Bench) -> None:
    bench.disk.fail(DiskOperation.WRITE, path_part="/one/a-0/00000000000000000000.log", times=9)
    append(bench.struck)


async def an_index_entry(bench: Bench) -> None:
    append(bench.struck)
    bench.disk.fail(DiskOperation.WRITE, path_part="/one/a-0/00000000000000000000.index", times=9)
    append(bench.struck)


async def a_roll(bench: Bench) -> None:
    append(bench.struck, 15_000)
    bench.disk.fail(DiskOperation.OPEN, path_part="/one/a-0/00000000000000000001", times=9)
    append(bench.struck, 15_000)


async def a_read(bench: Bench) -> None:
    for _ in range(20):
        append(bench.struck)
    await bench.struck.roll(now_ms=1_000)
    bench.disk.fail(DiskOperation.READ, path_part="/one/a-0/", times=9)
    bench.struck.read(Offset(3), bytes_max=100, end_offset=Offset(20), at_least_one=True)


async def a_slice_that_is_read_elsewhere(bench: Bench) -> None:
    append(bench.struck)
    piece = bench.struck.read(
        Offset(0), bytes_max=100, end_offset=Offset(1), at_least_one=True
    ).slice
    assert piece is not None
    bench.disk.fail(DiskOperation.READ, path_part="/one/a-0/", times=9)
    with pytest.raises(SliceError) as met:
        piece.read()
    bench.logs.on_file_error(met.value.filename, met.value)


async def a_look_up_by_time(bench: Bench) -> None:
    append(bench.struck)
    bench.disk.fail(DiskOperation.READ, path_part="/one/a-0/", times=9)
    await bench.struck.offset_for_timestamp(1_000, Offset(1))


async def a_flush(bench: Bench) -> None:
    append(bench.struck)
    bench.disk.fail(DiskOperation.FSYNC, path_part="/one/a-0/00000000000000000000.log")
    await bench.struck.flush()


async def a_flush_for_want_of_room(bench: Bench) -> None:
    """The kernel forgets what it could not write, whatever kept it from writing."""
    append(bench.struck)
    bench.disk.fail(
        DiskOperation.FSYNC, errno.ENOSPC, path_part="/one/a-0/00000000000000000000.log"
    )
    await bench.struck.flush()


async def an_epoch_file(bench: Bench) -> None:
    append(bench.struck, epoch=7)
    bench.disk.fail(DiskOperation.NAME, path_part="/one/a-0/leader-epoch-checkpoint", times=9)
    bench.disk.fail(DiskOperation.WRITE, path_part="/one/a-0/leader-epoch-checkpoint", times=9)
    await bench.struck.flush()


async def a_snapshot_of_producers(bench: Bench) -> None:
    append(bench.struck)
    bench.disk.fail(
        DiskOperation.WRITE, path_part="/one/a-0/00000000000000000001.snapshot", times=9
    )
    await bench.struck.roll(now_ms=1_000)


async def a_truncation(bench: Bench) -> None:
    append(bench.struck)
    append(bench.struck)
    bench.disk.fail(DiskOperation.WRITE, path_part="/one/a-0/00000000000000000000.log", times=9)
    await bench.struck.truncate_to(Offset(1))


async def a_removal(bench: Bench) -> None:
    append(bench.struck)
    await bench.struck.roll(now_ms=1_000)
    bench.struck.update_high_watermark(Offset(1))
    bench.disk.fail(DiskOperation.NAME, path_part="/one/a-0/00000000000000000000", times=9)
    await bench.struck.delete_records_before(Offset(1))


async def a_retention_round(bench: Bench) -> None:
    append(bench.struck)
    await bench.struck.roll(now_ms=1_000)
    bench.struck.update_high_watermark(Offset(1))
    bench.disk.fail(DiskOperation.NAME, path_part="/one/a-0/00000000000000000000", times=9)
    bench.struck.state.log_start_offset = Offset(1)
    await bench.struck.delete_old_segments(1_000)


async def a_checkpoint(bench: Bench) -> None:
    bench.disk.fail(DiskOperation.NAME, path_part="/one/recovery-point-offset-checkpoint", times=9)
    bench.disk.fail(DiskOperation.WRITE, path_part="/one/recovery-point-offset-checkpoint", times=9)
    await bench.logs.checkpoint_recovery_points()


async def a_new_log(bench: Bench) -> None:
    bench.disk.fail(DiskOperation.NAME, path_part="/one/b-0", times=9)
    await bench.logs.create(
        TopicPartition("b", 0), UUID(int=2000), CONFIG, directory_id=UUID(int=500)
    )


async def a_deletion(bench: Bench) -> None:
    bench.disk.fail(DiskOperation.NAME, path_part="/one/", times=99)
    await bench.logs.delete(A0)


async def the_files_of_a_deleted_log(bench: Bench) -> None:
    await bench.logs.delete(A0)
    bench.disk.fail(DiskOperation.NAME, path_part="-delete", times=99)
    await trio.sleep(70)


@pytest.mark.parametrize(
    "meet",
    [
        an_append,
        an_index_entry,
        a_roll,
        a_read,
        a_slice_that_is_read_elsewhere,
        a_look_up_by_time,
        a_flush,
        a_flush_for_want_of_room,
        an_epoch_file,
        a_snapshot_of_producers,
        a_truncation,
        a_removal,
        a_retention_round,
        a_checkpoint,
        a_new_log,
        a_deletion,
        the_files_of_a_deleted_log,
    ],
)
async def test_a_file_that_fails_fails_its_directory(
    meet: Callable[[Bench], Awaitable[None]], autojump_clock: MockClock
) -> None:
    async with opened() as bench:
        try:
            await meet(bench)
        except RefusedError as refused:
            assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert bench.failed == ["/one"]
        assert [directory.is_live for directory in bench.logs.directories] == [False, True]
        assert bench.struck.failure is not None
        append(bench.other)
        assert await bench.other.flush() == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("meet", [an_append, an_index_entry, a_roll])
async def test_what_passes_by_itself_fails_nothing(
    meet: Callable[[Bench], Awaitable[None]],
    number: int,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened() as bench:
        fail = bench.disk.fail

        def fail_so(operation: DiskOperation, **named: object) -> object:
            return fail(operation, number, path_part=str(named["path_part"]), times=1)

        monkeypatch.setattr(bench.disk, "fail", fail_so)
        try:
            await meet(bench)
        except RefusedError as refused:
            assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert bench.failed == []
        assert bench.struck.failure is None
        before = bench.struck.end_offset
        append(bench.struck)
        assert bench.struck.end_offset == before + 1


# ---- a disk that hangs


async def test_a_disk_that_hangs_holds_up_no_other_directory(autojump_clock: MockClock) -> None:
    """Its checkpoints, flushes, retention, creations and deletions wait; those of other directories
    continue."""
    async with opened() as bench:
        disk, logs, other = bench.disk, bench.logs, bench.other
        append(bench.struck)
        other.config = LogConfig(segment_bytes=20_000, flush_ms=1_000, retention_ms=1)
        append(other)
        await other.roll(now_ms=1_000)
        append(other)
        other.update_high_watermark(Offset(2))
        never = trio.Event()
        disk.faults.hang("/one", never.wait)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.struck.flush)
            await trio.testing.wait_all_tasks_blocked()  # else the deletion may come before it
            nursery.start_soon(logs.delete, A0)
            for name in ("b", "c", "d", "e", "f", "g"):
                nursery.start_soon(make, logs, name, UUID(int=500))
            await trio.sleep(10)
            logs.apply_retention_soon()
            await trio.sleep(120)

            assert other.recovery_point == 2
            assert other.log_start_offset > 0
            for checkpoint in ("replication-offset", "recovery-point-offset", "log-start-offset"):
                data = await disk.read_file(f"/two/{checkpoint}-checkpoint")
                assert parse_checkpoint(data)[A1] > 0, checkpoint
            assert (await make(logs, "h", UUID(int=501))).directory == "/two/h-0"
            await logs.delete(A1)
            assert logs.get(A1) is None
            nursery.cancel_scope.cancel()


async def make(logs: LogManager, topic: str, directory_id: UUID) -> Log:
    return await logs.create(
        TopicPartition(topic, 0), UUID(int=3_000), CONFIG, directory_id=directory_id
    )


async def test_a_failed_directory_returns_with_the_next_start(autojump_clock: MockClock) -> None:
    async with opened() as bench:
        disk = bench.disk
        append(bench.struck)
        await bench.struck.flush()
        disk.fail(DiskOperation.WRITE, path_part="/one/a-0/", times=9)
        with pytest.raises(RefusedError):
            append(bench.struck)
        assert bench.failed == ["/one"]
    disk.heal()
    config = BrokerConfig(node_id=NodeId(1), log_dirs=("/one", "/two"))
    async with open_log_manager(disk, config, TrioClock(), SeededRng(6)) as logs:
        await logs.recover(lambda partition: CONFIG)
        assert all(directory.is_live for directory in logs.directories)
        log = logs.get(A0)
        assert log is not None
        assert log.end_offset == 1


async def test_a_failure_met_by_a_coordinator_fails_the_directory_too(
    autojump_clock: MockClock,
) -> None:
    async with opened() as bench:
        bench.disk.fail(DiskOperation.WRITE, path_part="/one/a-0/", times=9)
        batch = build_batch([(1_000, b"k", b"v")])
        with pytest.raises(RefusedError):
            bench.struck.append_as_leader(
                memoryview(batch),
                leader_epoch=Epoch(0),
                now_ms=1_000,
                origin=AppendOrigin.COORDINATOR,
            )
        assert bench.failed == ["/one"]


@pytest.mark.parametrize("pauses", range(12))
@pytest.mark.parametrize("to", [0, 1, 30])
async def test_a_directory_that_fails_during_a_truncation_refuses_it(
    pauses: int, to: int, autojump_clock: MockClock
) -> None:
    """Wherever it is by then: its files are closed, and nothing is asserted of them."""
    async with opened() as bench:
        log = bench.struck
        for _ in range(3):
            append(log, 15_000)
        outcome: list[str] = []

        async def truncate() -> None:
            try:
                if to < 3:
                    await log.truncate_to(Offset(to))
                else:
                    await log.truncate_fully_and_start_at(Offset(to))
                outcome.append("done")
            except RefusedError as refused:
                outcome.append(refused.code.name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(truncate)
            for _ in range(pauses):
                await trio.lowlevel.checkpoint()
            bench.logs.fail_directory(bench.logs.directories[0], "asked for")
        assert outcome in (["done"], ["KAFKA_STORAGE_ERROR"])
        assert log.failure is not None


async def test_a_full_disk_is_reported_with_its_directory_until_it_has_room(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ottla.storage.directories.free_space_driver")
    async with opened() as bench:
        directory = bench.logs.directory_of(A0)
        assert directory is not None
        bench.disk.capacity_bytes = bench.disk.used_bytes + 2_000
        with pytest.raises(RefusedError) as refused:
            for _ in range(100):
                append(bench.struck)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert refused.value.message.startswith("the disk of log directory /one is full; retry")
        assert "Errno" not in refused.value.message
        with pytest.raises(RefusedError):
            append(bench.struck)
        assert directory.free_space.report().problems[0].startswith("log directory /one is full")
        await bench.logs.checkpoint_high_watermarks()  # which finds no room either
        await trio.sleep(60)

        bench.disk.capacity_bytes = None
        append(bench.struck)
        await trio.sleep(15)
        assert directory.free_space.report().problems == ()
        assert bench.failed == []
    said = [line.getMessage().split(" (")[0] for line in caplog.records]
    assert [text for text in said if "/one" in text][:1] == ["log directory /one is full"]
    assert sum("/one is full" in text for text in said) == 1
    assert sum("/one has room again" in text for text in said) == 1
