"""After a clean stop logs are opened from the survey of their directories."""

from uuid import UUID

import pytest

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.rng import SeededRng
from ottla.jepsen.world.simulated_file import SimulatedFile
from ottla.model.errors import CorruptDataError
from ottla.model.ids import Epoch, NodeId, Offset, TopicPartition
from ottla.model.settings.broker import BrokerConfig
from ottla.node.clock_driver import RealClock, RealRng
from ottla.storage.directories.meta_properties import MetaProperties, format_meta_properties
from ottla.storage.log.log import Log
from ottla.storage.losses.log_losses import LossKind
from ottla.storage.manager.log_manager_driver import open_log_manager
from ottla.storage.segments.files import LEADER_EPOCH_CHECKPOINT
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.segments.segment_list import CLOSED_SEGMENTS, parse_segments
from ottla.wire.batch_builder import build_batch
from tests.storage.log.workbench import read_values

ROOT = "/data"
TOPIC = UUID(int=9)
LOG_COUNT = 250


class CountingDisk(SimulatedDisk):
    """Counts what a start asks of the disk."""

    def __init__(self) -> None:
        super().__init__(SeededRng(1))
        self.awaited_count = 0
        self.changed: list[str] = []
        """Files of logs that were replaced."""

    async def _wait(self, path: str) -> None:
        self.awaited_count += 1
        await super()._wait(path)

    async def write_atomically(self, path: str, data: bytes) -> None:
        if path.startswith(f"{ROOT}/t-"):
            self.changed.append(path)
        await super().write_atomically(path, data)


async def disk_with_logs(count: int, *, records: int = 0) -> tuple[CountingDisk, BrokerConfig]:
    disk = CountingDisk()
    await disk.makedirs(ROOT)
    identity = MetaProperties(cluster_id="c", node_id=NodeId(1), directory_id=UUID(int=500))
    await disk.write_atomically(f"{ROOT}/meta.properties", format_meta_properties(identity))
    disk.flush_everything()
    config = BrokerConfig(node_id=NodeId(1), log_dirs=(ROOT,))
    async with open_log_manager(disk, config, RealClock(), RealRng()) as logs:
        await logs.recover(lambda partition: LogConfig())
        for index in range(count):
            log = await logs.create(TopicPartition("t", index), TOPIC, LogConfig())
            for _ in range(records):
                append(log)
        await logs.shutdown_cleanly(1)
    disk.kill()
    disk.awaited_count = 0
    disk.changed.clear()
    return disk, config


def append(log: Log, epoch: int = 0) -> None:
    batch = build_batch([(1_000, None, b"value")])
    log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=Epoch(epoch), now_ms=1_000)


async def test_empty_logs_are_opened_and_closed_without_a_file_of_theirs() -> None:
    disk, config = await disk_with_logs(LOG_COUNT)
    async with open_log_manager(disk, config, RealClock(), RealRng()) as logs:
        before = disk.descriptor_count
        awaited_before = disk.awaited_count
        await logs.recover(lambda partition: LogConfig())
        assert len(logs) == LOG_COUNT
        assert disk.descriptor_count == before
        # The world's survey waits once for each directory.
        assert disk.awaited_count - awaited_before < LOG_COUNT + 20
        disk.changed.clear()
        await logs.shutdown_cleanly(1)
        assert not disk.changed


async def test_what_was_stopped_cleanly_is_the_same_after_many_starts() -> None:
    disk, config = await disk_with_logs(3, records=4)
    for _ in range(3):
        async with open_log_manager(disk, config, RealClock(), RealRng()) as logs:
            await logs.recover(lambda partition: LogConfig())
            for _, log in logs:
                assert log.end_offset == 4
                assert len(read_values(log)) == 4
            disk.changed.clear()
            await logs.shutdown_cleanly(1)
            assert not disk.changed
        disk.crash()


async def test_a_log_that_grew_after_a_clean_start_is_whole_after_the_next() -> None:
    disk, config = await disk_with_logs(2, records=1)
    for count in (2, 3):
        async with open_log_manager(disk, config, RealClock(), RealRng()) as logs:
            await logs.recover(lambda partition: LogConfig(index_interval_bytes=0))
            for _, log in logs:
                append(log)
            await logs.shutdown_cleanly(1)
        disk.crash()
        async with open_log_manager(disk, config, RealClock(), RealRng()) as logs:
            await logs.recover(lambda partition: LogConfig(index_interval_bytes=0))
            assert [log.end_offset for _, log in logs] == [count, count]
            await logs.shutdown_cleanly(1)
        disk.kill()


async def test_a_leadership_without_records_is_no_reason_to_write_anything() -> None:
    disk, config = await disk_with_logs(2, records=1)
    for epoch in (1, 2):
        async with open_log_manager(disk, config, RealClock(), RealRng()) as logs:
            await logs.recover(lambda partition: LogConfig())
            for _, log in logs:
                assert log.last_epoch == 0
                log.assign_epoch(Epoch(epoch), log.end_offset)
            disk.changed.clear()
            await logs.shutdown_cleanly(1)
            assert not disk.changed
        disk.kill()


SEGMENT_COUNT = 51


async def disk_with_segments() -> tuple[CountingDisk, BrokerConfig, LogConfig]:
    """Return the disk of a broker that stopped cleanly with 51 closed segments in one log."""
    disk, config = await disk_with_logs(1)
    small = LogConfig(segment_bytes=200)
    async with open_log_manager(disk, config, RealClock(), RealRng()) as logs:
        await logs.recover(lambda partition: small)
        (log,) = [log for _, log in logs]
        await log.keep()
        while log.segment_count <= SEGMENT_COUNT:
            append(log)
        await logs.shutdown_cleanly(1)
    disk.kill()
    return disk, config, small


async def test_a_clean_start_opens_no_file_of_closed_segments() -> None:
    disk, config, small = await disk_with_segments()
    opened: list[str] = []
    original = SimulatedFile.read_cached

    def read_cached(self: SimulatedFile, position: int, size: int) -> bytes:
        opened.append(self.path)
        return original(self, position, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimulatedFile, "read_cached", read_cached)
        async with open_log_manager(disk, config, RealClock(), RealRng()) as logs:
            await logs.recover(lambda partition: small)
            (log,) = [log for _, log in logs]
            active = log.segments[-1].path_of("")
            assert [path for path in opened if not path.startswith(active)] == []
            times = [segment.max_timestamp_ms for segment in log.segments[:-1]]
            assert times == [1_000] * (log.segment_count - 1)
            count = log.end_offset
            assert len(read_values(log)) == count
            disk.changed.clear()
            await logs.shutdown_cleanly(1)
            assert not disk.changed


@pytest.mark.parametrize("suffix", ["log", "index", "timeindex"])
async def test_a_closed_segment_that_changed_is_not_taken_as_it_was(
    suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk, config, small = await disk_with_segments()
    names = [name for name in await disk.listdir(f"{ROOT}/t-0") if name.endswith(f".{suffix}")]
    path = f"{ROOT}/t-0/{names[10]}"
    data = await disk.read_file(path)
    # A log is cut where a batch ends, which its bytes do not show.
    await disk.write_atomically(path, data[: len(data) // 2] if suffix == "log" else b"\1" * 5)
    disk.flush_everything()
    async with open_log_manager(disk, config, RealClock(), RealRng()) as logs:
        await logs.recover(lambda partition: small)
        (log,) = [log for _, log in logs]
        if suffix == "log":
            assert "does not have its" in caplog.text
            (loss,) = logs.losses.values()
            assert (loss.kind, loss.found_end_offset) == (LossKind.TRUNCATED, log.end_offset)
        else:
            assert not logs.losses
            assert len(read_values(log)) == log.end_offset


@pytest.mark.parametrize("index", [0, 10])
async def test_a_log_with_a_hole_is_lost_and_keeps_what_is_behind_it_until_it_follows(
    index: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk, config, small = await disk_with_segments()
    names = [name for name in await disk.listdir(f"{ROOT}/t-0") if name.endswith(".log")]
    base_offset = int(names[index].removesuffix(".log"))
    await disk.unlink(f"{ROOT}/t-0/{names[index]}")
    for is_known_before in (False, True):
        async with open_log_manager(disk, config, RealClock(), RealRng()) as logs:
            await logs.recover(lambda partition: small)
            (loss,) = logs.losses.values()
            (log,) = [log for _, log in logs]
            assert (loss.kind, loss.found_end_offset) == (LossKind.INCOMPLETE, base_offset)
            assert loss.promised_end_offset == log.end_offset
            assert log.hole_offset == base_offset
            assert logs.known_losses.found_counts.total() == (not is_known_before)
        disk.kill()  # the list of segments does not count at the next start: the loss is remembered
    assert "t-0: 1 closed segments of the last clean shutdown are missing" in caplog.text
    assert f"has a hole from offset {base_offset} on" in caplog.text

    async with open_log_manager(disk, config, RealClock(), RealRng()) as logs:
        await logs.recover(lambda partition: small)
        (log,) = [log for _, log in logs]
        if base_offset > log.log_start_offset:
            await log.truncate_to(Offset(base_offset))
        else:
            await log.truncate_fully_and_start_at(Offset(base_offset))
        assert (log.end_offset, log.hole_offset) == (base_offset, None)
        while log.end_offset < (loss.promised_end_offset or 0):
            append(log)
        await logs.forget_losses([loss.key])
        await logs.shutdown_cleanly(1)
    disk.kill()
    async with open_log_manager(disk, config, RealClock(), RealRng()) as logs:
        await logs.recover(lambda partition: small)
        (log,) = [log for _, log in logs]
        assert not logs.losses
        assert log.hole_offset is None
        assert len(read_values(log)) == log.end_offset == loss.promised_end_offset


async def test_a_leader_with_a_hole_keeps_it() -> None:
    disk, config, small = await disk_with_segments()
    names = [name for name in await disk.listdir(f"{ROOT}/t-0") if name.endswith(".log")]
    await disk.unlink(f"{ROOT}/t-0/{names[10]}")
    async with open_log_manager(disk, config, RealClock(), RealRng()) as logs:
        await logs.recover(lambda partition: small)
        (log,) = [log for _, log in logs]
        await logs.forget_losses(list(logs.losses))  # it was elected
        assert log.hole_offset is None
        assert 0 < len(read_values(log)) < log.end_offset
        await logs.shutdown_cleanly(1)
    async with open_log_manager(disk, config, RealClock(), RealRng()) as logs:
        await logs.recover(lambda partition: small)
        assert not logs.losses


async def test_closed_segments_below_the_log_start_may_be_gone() -> None:
    disk, config, small = await disk_with_segments()
    listed = await disk.read_file(f"{ROOT}/t-0/{CLOSED_SEGMENTS}")
    async with open_log_manager(disk, config, RealClock(), RealRng()) as logs:
        await logs.recover(lambda partition: small)
        (log,) = [log for _, log in logs]
        log.update_high_watermark(log.end_offset)
        await log.delete_records_before(Offset(log.segments[10].base_offset + 1))
        await logs.shutdown_cleanly(1)
    await disk.write_atomically(f"{ROOT}/t-0/{CLOSED_SEGMENTS}", listed)  # an older copy
    async with open_log_manager(disk, config, RealClock(), RealRng()) as logs:
        await logs.recover(lambda partition: small)
        assert not logs.losses


@pytest.mark.parametrize("is_gone", [False, True])
async def test_an_older_epoch_checkpoint_is_brought_up_by_the_batches(is_gone: bool) -> None:
    disk, config, small = await disk_with_segments()
    path = f"{ROOT}/t-0/{LEADER_EPOCH_CHECKPOINT}"
    older = await disk.read_file(path)
    async with open_log_manager(disk, config, RealClock(), RealRng()) as logs:
        await logs.recover(lambda partition: small)
        (log,) = [log for _, log in logs]
        began = log.end_offset
        for _ in range(20):
            append(log, epoch=3)
        await logs.shutdown_cleanly(1)
    if is_gone:
        await disk.unlink(path)
    else:
        await disk.write_atomically(path, older)
    async with open_log_manager(disk, config, RealClock(), RealRng()) as logs:
        await logs.recover(lambda partition: small)
        (log,) = [log for _, log in logs]
        assert not logs.losses
        assert log.last_epoch == 3
        assert log.end_offset_for_epoch(Epoch(0)) == (began, 0)
        assert len(read_values(log)) == log.end_offset == began + 20


@pytest.mark.parametrize("data", [b"", b"0\n", b"0\n1\n0 1 2\n5\n", b"\xff", b"a\nb\nc\n"])
def test_a_damaged_list_of_segments_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        parse_segments(data)


async def test_a_damaged_list_of_segments_only_costs_work() -> None:
    disk, config, small = await disk_with_segments()
    await disk.write_atomically(f"{ROOT}/t-0/closed-segments", b"damaged")
    async with open_log_manager(disk, config, RealClock(), RealRng()) as logs:
        await logs.recover(lambda partition: small)
        (log,) = [log for _, log in logs]
        assert len(read_values(log)) == log.end_offset
