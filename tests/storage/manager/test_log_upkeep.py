"""Periodic work on the logs of a directory: checkpoints, flushes, retention."""

import errno
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.jepsen.world.rng import SeededRng
from ottla.model.errors import RefusedError
from ottla.model.ids import Epoch, NodeId, Offset, ProducerId, TopicPartition
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.declare import values_of
from ottla.storage.directories.checkpoint_file import parse_checkpoint
from ottla.storage.directories.meta_properties import MetaProperties, format_meta_properties
from ottla.storage.disk.disk_seam import when_cached
from ottla.storage.log.log import Log
from ottla.storage.manager.log_manager_driver import LogManager, open_log_manager
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import build_batch

A0 = TopicPartition("a", 0)
TOPIC_ID = UUID(int=1000)
CONFIG = LogConfig()


class TrioClock:
    """Time is trio's, so that tests with a MockClock never wait."""

    def monotonic_ms(self) -> int:
        return int(trio.current_time() * 1_000)

    wall_ms = monotonic_ms


async def formatted_disk(*paths: str, seed: int = 0) -> SimulatedDisk:
    disk = SimulatedDisk(SeededRng(seed), pause=trio.lowlevel.checkpoint)
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
    node_id: int = 1,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[LogManager]:
    values, _ = values_of(BrokerConfig, settings)
    config = BrokerConfig(node_id=NodeId(node_id), log_dirs=paths, **values)
    async with open_log_manager(disk, config, TrioClock(), SeededRng(5)) as logs:
        await logs.recover(lambda partition: CONFIG)
        yield logs


def append(log: Log, *values: bytes, now_ms: int = 1_000) -> None:
    batch = build_batch([(1_000, None, value) for value in values])
    log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=Epoch(0), now_ms=now_ms)


async def test_checkpoints_are_written_in_their_rhythm(autojump_clock: MockClock) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        log = await logs.create(A0, TOPIC_ID, LogConfig(segment_bytes=1_000))
        await log.keep()
        append(log, b"x", b"y", b"z" * 800)
        append(log, b"x" * 800)
        log.update_high_watermark(Offset(2))
        await trio.sleep(6)
        data = await disk.read_file("/one/replication-offset-checkpoint")
        assert parse_checkpoint(data) == {A0: 2}
        data = await disk.read_file("/one/recovery-point-offset-checkpoint")
        assert parse_checkpoint(data) == {}
        await trio.sleep(60)
        data = await disk.read_file("/one/recovery-point-offset-checkpoint")
        assert parse_checkpoint(data) == {A0: 3}
        data = await disk.read_file("/one/log-start-offset-checkpoint")
        assert parse_checkpoint(data) == {A0: 0}


async def test_periodic_work_begins_after_the_initial_delay(autojump_clock: MockClock) -> None:
    disk = await formatted_disk("/one")
    settings = {"log.initial.task.delay.ms": "10000", "log.retention.check.interval.ms": "4000"}
    async with recovered(disk, "/one", settings=settings) as logs:
        config = LogConfig(segment_bytes=1_000, retention_bytes=1_000)
        log = await logs.create(A0, TOPIC_ID, config)
        await log.keep()
        starts: list[Offset] = []
        for _ in range(5):
            append(log, b"x" * 800)
            append(log, b"x" * 800)
            log.update_high_watermark(log.end_offset)
            starts.append(log.log_start_offset)
            await trio.sleep(3.999)
        assert [start > 0 for start in starts] == [False, False, False, True, True]
        assert starts[4] > starts[3]
    async with recovered(disk, "/one", settings=settings):
        for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
            await disk.unlink(f"/one/{name}")
        await trio.sleep(9)
        assert not disk.exists("/one/recovery-point-offset-checkpoint")
        assert not disk.exists("/one/log-start-offset-checkpoint")
        await trio.sleep(2)
        assert disk.exists("/one/recovery-point-offset-checkpoint")
        assert disk.exists("/one/log-start-offset-checkpoint")


@pytest.mark.parametrize(("interval_ms", "flushed_at_s"), [(None, 4), (200, 4), (9_000, 10)])
async def test_flush_ms_is_looked_at_in_its_own_interval(
    interval_ms: int | None, flushed_at_s: int, autojump_clock: MockClock
) -> None:
    disk = await formatted_disk("/one")
    settings = {"log.flush.scheduler.interval.ms": str(interval_ms)} if interval_ms else {}
    async with recovered(disk, "/one", settings=settings) as logs:
        log = await logs.create(A0, TOPIC_ID, LogConfig(flush_ms=2_000))
        await log.keep()
        append(log, b"x", now_ms=TrioClock().wall_ms())
        await trio.sleep(flushed_at_s - 3)
        assert log.recovery_point == 0
        await trio.sleep(3)
        assert log.recovery_point == 1


async def test_deleted_records_stay_deleted_after_a_kill(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = await formatted_disk("/one")
    written: list[str] = []
    write = disk.write_atomically

    async def counted(path: str, data: bytes) -> None:
        written.append(path)
        await write(path, data)

    async with recovered(disk, "/one") as logs:
        some = [await logs.create(TopicPartition("a", n), TOPIC_ID, CONFIG) for n in range(20)]
        for log in some:
            append(log, b"x", b"y", b"z")
            append(log, b"x", b"y", b"z")
            await log.flush()
            log.update_high_watermark(log.end_offset)
            log.raise_log_start(Offset(4))
        monkeypatch.setattr(disk, "write_atomically", counted)
        for log in some:
            await log.delete_records_before(Offset(4))
        assert written.count("/one/log-start-offset-checkpoint") == 1
        await some[7].delete_records_before(Offset(5))
    disk.crash()
    async with recovered(disk, "/one") as logs:
        starts = {one.partition: log.log_start_offset for one, log in logs}
        assert starts == {n: 5 if n == 7 else 4 for n in range(20)}


async def test_deletions_at_the_same_time_share_writes(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = await formatted_disk("/one")
    written: list[str] = []
    write = disk.write_atomically

    async def counted(path: str, data: bytes) -> None:
        written.append(path)
        await write(path, data)

    async with recovered(disk, "/one") as logs:
        some = [await logs.create(TopicPartition("a", n), TOPIC_ID, CONFIG) for n in range(20)]
        monkeypatch.setattr(disk, "write_atomically", counted)
        async with trio.open_nursery() as nursery:
            for log in some:
                append(log, b"x", b"y", b"z")
                log.update_high_watermark(log.end_offset)
                nursery.start_soon(log.delete_records_before, Offset(2))
        assert written.count("/one/log-start-offset-checkpoint") <= 2


async def test_on_a_full_disk_deleted_records_make_room_before_they_are_refused(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        log = await logs.create(A0, TOPIC_ID, LogConfig(segment_bytes=1_000))
        await log.keep()
        for _ in range(4):
            append(log, b"x" * 800)
        log.update_high_watermark(log.end_offset)
        disk.fail(DiskOperation.WRITE, errno.ENOSPC, path_part="log-start-offset", times=99)
        with pytest.raises(RefusedError, match="KAFKA_STORAGE_ERROR"):
            await log.delete_records_before(Offset(2))
        assert (log.segment_count, log.failure) == (2, None)
        disk.heal()
        await log.delete_records_before(Offset(2))
    disk.kill()
    async with recovered(disk, "/one") as logs:
        found = logs.get(A0)
        assert found is not None
        assert found.log_start_offset == 2


async def test_checkpoints_wait_for_recovery(autojump_clock: MockClock) -> None:
    disk = await formatted_disk("/one")
    before = b"0\n1\na 0 7\n"
    await disk.write_atomically("/one/replication-offset-checkpoint", before)
    config = BrokerConfig(node_id=NodeId(1), log_dirs=("/one",))
    async with open_log_manager(disk, config, TrioClock(), SeededRng(5)):
        await trio.sleep(20)
    assert await disk.read_file("/one/replication-offset-checkpoint") == before


async def test_a_roll_is_flushed_in_the_background(autojump_clock: MockClock) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        log = await logs.create(A0, TOPIC_ID, LogConfig(segment_bytes=1_000))
        await log.keep()
        append(log, b"x" * 800)
        append(log, b"x" * 800)
        assert log.recovery_point == 0
        await trio.sleep(1)
        assert log.recovery_point == 1


async def test_retention_runs_by_itself(autojump_clock: MockClock) -> None:
    disk = await formatted_disk("/one")
    config = LogConfig(segment_bytes=1_000, retention_bytes=1_000)
    async with recovered(disk, "/one") as logs:
        log = await logs.create(A0, TOPIC_ID, config)
        await log.keep()
        for _ in range(5):
            append(log, b"x" * 800)
        log.update_high_watermark(log.end_offset)
        await trio.sleep(301)
        assert log.log_start_offset > 0


async def test_retention_is_looked_at_soon_when_it_was_changed(autojump_clock: MockClock) -> None:
    """Kafka lets a change wait for its next periodic look, up to five minutes later."""
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        log = await logs.create(A0, TOPIC_ID, LogConfig(segment_bytes=1_000))
        await log.keep()
        for _ in range(5):
            append(log, b"x" * 800)
        log.update_high_watermark(log.end_offset)
        log.config = LogConfig(segment_bytes=1_000, retention_bytes=1_000)
        logs.apply_retention_soon()
        await trio.sleep(1)
        assert log.log_start_offset > 0


async def test_silent_producers_are_forgotten_at_the_next_check(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    config = LogConfig(producer_id_expiration_ms=90_000)
    settings = {"producer.id.expiration.check.interval.ms": "60000"}
    async with recovered(disk, "/one", settings=settings) as logs:
        log = await logs.create(A0, TOPIC_ID, config)
        await log.keep()
        batch = build_batch(
            [(1_000, None, b"x")], producer_id=ProducerId(7), producer_epoch=0, base_sequence=0
        )
        now_ms = TrioClock().wall_ms()
        log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=Epoch(0), now_ms=now_ms)
        await trio.sleep(119)
        assert set(log.active_producers) == {7}
        await trio.sleep(2)
        assert not log.active_producers


# ---- retention


def names(disk: SimulatedDisk, directory: str) -> list[str]:
    return sorted(path.removeprefix(f"{directory}/") for path in disk.files_in(directory))


async def three_segments(logs: LogManager, *, file_delete_delay_ms: int = 60_000) -> Log:
    config = LogConfig(
        segment_bytes=1_000, retention_bytes=1_000, file_delete_delay_ms=file_delete_delay_ms
    )
    log = await logs.create(A0, TOPIC_ID, config)
    await log.keep()
    for _ in range(3):
        append(log, b"x" * 800)
    log.update_high_watermark(log.end_offset)
    await trio.sleep(1)
    return log


async def test_what_retention_removes_stays_for_a_while_under_another_name(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        log = await three_segments(logs, file_delete_delay_ms=40_000)
        reader = await when_cached(
            disk,
            lambda: log.read(Offset(0), bytes_max=9_000, end_offset=Offset(1), at_least_one=True),
        )
        assert reader.slice is not None
        before = reader.slice.read()
        await log.delete_old_segments(1_000)
        assert log.log_start_offset == 1
        aside = [name for name in names(disk, "/one/a-0") if name.startswith(f"{0:020}")]
        assert aside == [f"{0:020}{kind}.deleted" for kind in (".index", ".log", ".timeindex")]
        await trio.sleep(39)
        assert disk.exists(f"/one/a-0/{0:020}.log.deleted")
        await trio.sleep(2)
        assert not [name for name in names(disk, "/one/a-0") if name.endswith(".deleted")]
        assert reader.slice.read() == before


async def test_each_removed_segment_goes_after_its_own_delay(autojump_clock: MockClock) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        log = await three_segments(logs, file_delete_delay_ms=40_000)
        await log.delete_records_before(Offset(1))
        log.config = LogConfig(file_delete_delay_ms=5_000)
        await trio.sleep(1)
        await log.delete_records_before(Offset(2))
        await trio.sleep(6)
        assert disk.exists(f"/one/a-0/{0:020}.log.deleted")
        assert not disk.exists(f"/one/a-0/{1:020}.log.deleted")
        await logs.delete(A0)
        await trio.sleep(120)
        assert not disk.exists("/one/a-0")


@pytest.mark.parametrize("is_power_cut", [False, True])
async def test_what_was_set_aside_is_gone_after_the_next_start(
    is_power_cut: bool, autojump_clock: MockClock
) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        log = await three_segments(logs)
        await log.delete_old_segments(1_000)
        assert disk.exists(f"/one/a-0/{0:020}.log.deleted")
    disk.crash() if is_power_cut else disk.kill()
    async with recovered(disk, "/one") as logs:
        found = logs.get(A0)
        assert found is not None
        assert found.log_start_offset == 1
        assert not [name for name in names(disk, "/one/a-0") if name.endswith(".deleted")]


async def test_records_without_timestamps_age_by_their_files_last_write(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    disk.wall_ms = TrioClock().wall_ms
    timeless = memoryview(build_batch([(-1, None, b"x")]))
    config = LogConfig(retention_ms=30_000)
    async with recovered(disk, "/one") as logs:
        log = await logs.create(A0, TOPIC_ID, config)
        await log.keep()
        await trio.sleep(40)
        log.append_as_leader(timeless, leader_epoch=Epoch(0), now_ms=TrioClock().wall_ms())
        log.update_high_watermark(log.end_offset)
        await log.flush()
        await trio.sleep(20)
        assert await log.delete_old_segments(TrioClock().wall_ms()) == 0
    disk.kill()
    async with recovered(disk, "/one") as logs:
        found = logs.get(A0)
        assert found is not None
        found.config = config
        found.update_high_watermark(found.end_offset)
        assert await found.delete_old_segments(TrioClock().wall_ms()) == 0
        await trio.sleep(11)
        assert await found.delete_old_segments(TrioClock().wall_ms()) == 1


async def test_a_timestamp_ahead_of_our_clock_is_reported_once_a_segment(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        log = await logs.create(A0, TOPIC_ID, LogConfig(retention_ms=1_000))
        await log.keep()
        for ahead_ms in (3_000_000, 2_000_000):
            batch = build_batch([(TrioClock().wall_ms() + ahead_ms, None, b"x")])
            log.append_as_leader(memoryview(batch), leader_epoch=Epoch(0), now_ms=0)
            await log.roll(now_ms=0)
        log.update_high_watermark(log.end_offset)
        await trio.sleep(2_000)
        said = [one.getMessage() for one in caplog.records if "ahead of our clock" in one.message]
        assert len(said) == 1
        assert said[0].startswith("a-0: the segment from offset 0 on has a record with timestamp 3")
        assert log.segment_count == 3
        await trio.sleep(2_000)
        assert log.log_start_offset == 2


async def test_clocks_that_differ_a_little_are_not_reported(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        log = await logs.create(A0, TOPIC_ID, LogConfig(retention_ms=1_000))
        await log.keep()
        batch = build_batch([(90_000, None, b"x")])
        log.append_as_leader(memoryview(batch), leader_epoch=Epoch(0), now_ms=0)
        log.update_high_watermark(log.end_offset)
        await trio.sleep(45)
        assert "ahead of our clock" not in caplog.text
