"""A process has fewer descriptors than files; one that runs out of them loses no directory."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.jepsen.world.rng import SeededRng
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, TopicPartition
from ottla.model.settings.broker import BrokerConfig
from ottla.node.clock_driver import RealClock, RealRng
from ottla.storage.directories.meta_properties import MetaProperties, format_meta_properties
from ottla.storage.disk.directory_names import METADATA_DIRECTORY
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.disk.real_file_driver import DESCRIPTORS_RESERVED
from ottla.storage.log.log import Log
from ottla.storage.manager.log_manager_driver import open_log_manager
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import build_batch
from tests.storage.log.workbench import read_values

LOG_COUNT = 40
"""Logs that a test creates, of several files each."""
DESCRIPTORS_LEFT = 30
"""Descriptors that a test leaves to logs, however many the process has open already."""
TOPIC = UUID(int=9)


@pytest.fixture
def small_limit() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Other tests of the process may have left numbers open anywhere, so free ones are counted.
    in_use = {int(number) for number in os.listdir("/proc/self/fd")}
    highest_for_logs = [n for n in range(soft) if n not in in_use][DESCRIPTORS_LEFT]
    limit = highest_for_logs
    while limit - min(DESCRIPTORS_RESERVED, limit // 4) < highest_for_logs:
        limit += 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def settings(path: Path) -> BrokerConfig:
    identity = MetaProperties(cluster_id="c", node_id=NodeId(1), directory_id=UUID(int=500))
    (path / "meta.properties").write_bytes(format_meta_properties(identity))
    return BrokerConfig(node_id=NodeId(1), log_dirs=(str(path),))


def append(log: Log) -> None:
    batch = build_batch([(1_000, None, b"value")])
    log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=Epoch(0), now_ms=1_000)


async def test_idle_logs_are_more_than_there_are_descriptors(
    tmp_path: Path, small_limit: None
) -> None:
    config = settings(tmp_path)
    async with open_log_manager(RealDisk(), config, RealClock(), RealRng()) as logs:
        await logs.recover(lambda partition: LogConfig())
        for index in range(LOG_COUNT):
            log = await logs.create(TopicPartition("t", index), TOPIC, LogConfig())
            append(log)
            await log.flush()
        await logs.shutdown_cleanly(1)
    async with open_log_manager(RealDisk(), config, RealClock(), RealRng()) as logs:
        await logs.recover(lambda partition: LogConfig())
        assert len(logs) == LOG_COUNT
        for _, log in logs:
            assert len(read_values(log)) == 1


async def test_logs_that_find_no_descriptor_are_refused_and_the_directory_lives(
    tmp_path: Path, small_limit: None
) -> None:
    """Unflushed files keep their descriptors."""
    disk = RealDisk()
    refused = []
    async with open_log_manager(disk, settings(tmp_path), RealClock(), RealRng()) as logs:
        await logs.recover(lambda partition: LogConfig())
        for index in range(LOG_COUNT):
            try:
                append(await logs.create(TopicPartition("t", index), TOPIC, LogConfig()))
            except RefusedError as error:
                assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
                refused.append(index)
        assert 0 < len(refused) < LOG_COUNT
        assert logs.directories[0].is_live
        # The checkpoints are written, and the metadata log may roll.
        await logs.checkpoint_high_watermarks()
        assert logs.directories[0].is_live
        (tmp_path / METADATA_DIRECTORY).mkdir()
        files = [
            disk.open(f"{tmp_path}/{METADATA_DIRECTORY}/{number}.log", create=True)
            for number in range(4)
        ]
        for file in files:
            file.close()
        # A task that has finished with descriptors frees them for others: here, after a flush.
        await disk.flush_idle(str(tmp_path))
        await disk.flush_idle(str(tmp_path))
        for index in refused:
            append(await logs.create(TopicPartition("t", index), TOPIC, LogConfig()))
            await disk.flush_idle(str(tmp_path))
            await disk.flush_idle(str(tmp_path))
        assert len(logs) == LOG_COUNT


async def test_a_start_that_lacks_descriptors_opens_what_it_can() -> None:
    disk = SimulatedDisk(SeededRng(1))
    await disk.makedirs("/data")
    identity = MetaProperties(cluster_id="c", node_id=NodeId(1), directory_id=UUID(int=500))
    await disk.write_atomically("/data/meta.properties", format_meta_properties(identity))
    config = BrokerConfig(node_id=NodeId(1), log_dirs=("/data",))
    async with open_log_manager(disk, config, RealClock(), RealRng()) as logs:
        await logs.recover(lambda partition: LogConfig())
        for index in range(LOG_COUNT):
            append(await logs.create(TopicPartition("t", index), TOPIC, LogConfig()))
        await logs.shutdown_cleanly(1)
    disk.kill()
    disk.fail(DiskOperation.OPEN, errno.EMFILE, path_part="t-1", times=1_000)
    async with open_log_manager(disk, config, RealClock(), RealRng()) as logs:
        await logs.recover(lambda partition: LogConfig())
        assert logs.directories[0].is_live
        assert 0 < len(logs) < LOG_COUNT
        assert len(logs) + len(logs.offline) == LOG_COUNT
        assert "fails as asked" in next(iter(logs.offline.values()))


async def test_a_log_that_cannot_be_closed_in_order_keeps_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def has_no_room(log: Log) -> None:
        raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")

    async with open_log_manager(RealDisk(), settings(tmp_path), RealClock(), RealRng()) as logs:
        await logs.recover(lambda partition: LogConfig())
        log = await logs.create(TopicPartition("t", 0), TOPIC, LogConfig())
        append(log)
        assert open_files(tmp_path / "t-0")
        monkeypatch.setattr(Log, "close", has_no_room)
        await logs.shutdown_cleanly(1)
    assert not open_files(tmp_path / "t-0")


def open_files(directory: Path) -> list[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{number}")
            if path.startswith(f"{directory}/"):
                found.append(path)
    return found
