"""Records that a cleaning keeps of each batch, case by case."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Epoch, Offset, ProducerId
from ottla.storage.cleaner.offset_map import SLOT_BYTES
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import Log
from ottla.storage.segments.append_info import AppendOrigin
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch import BatchHeader, batches
from ottla.wire.batch_builder import ControlType, build_batch, build_end_transaction_marker
from ottla.wire.records import scan
from tests.storage.cleaner.cleaning_bench import aborts_of, clean_log, task_of
from tests.storage.log.workbench import NOW_MS, Workbench, append, read_values

pytestmark = pytest.mark.usefixtures("form")

RETENTION_MS = 1_000
CONFIG = LogConfig(segment_bytes=10_000, index_interval_bytes=100)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    bench = Workbench(RealDisk(), str(tmp_path / "orders-2"))
    yield bench
    bench.let_go()


def put(
    log: Log, *records: tuple[bytes | None, bytes | None], producer_id: int = -1, sequence: int = 0
) -> None:
    """Append a batch; producers from 10 on are transactional."""
    is_idempotent = producer_id >= 0
    batch = build_batch(
        [(NOW_MS, key, value) for key, value in records],
        producer_id=ProducerId(producer_id),
        producer_epoch=0 if is_idempotent else -1,
        base_sequence=sequence if is_idempotent else -1,
        is_transactional=producer_id >= 10,
    )
    append(log, batch)


def end_transaction(log: Log, producer_id: int, control_type: ControlType) -> None:
    marker = build_end_transaction_marker(
        control_type,
        timestamp_ms=NOW_MS,
        producer_id=ProducerId(producer_id),
        producer_epoch=0,
        coordinator_epoch=Epoch(0),
    )
    append(log, marker, origin=AppendOrigin.COORDINATOR)


async def cleaned(
    log: Log,
    disk: RealDisk,
    *,
    first_dirty: int = 0,
    map_keys: int = 100,
    now_ms: int = NOW_MS,
    is_rolled: bool = True,
) -> int:
    """Clean all but the active segment; return where the clean section ends."""
    if is_rolled:
        await log.roll(now_ms=NOW_MS)
    await log.flush()
    log.update_high_watermark(log.end_offset)
    task = task_of(
        log,
        first_dirty_offset=first_dirty,
        now_ms=now_ms,
        delete_retention_ms=RETENTION_MS,
        map_bytes=(map_keys + 1) * SLOT_BYTES,
    )
    return (await clean_log(disk, log, task))[0].clean_to


def headers_of(log: Log) -> list[BatchHeader]:
    return [
        header
        for segment in log.segments
        for _, header in batches(segment.file.pread(0, segment.size_bytes))
    ]


async def test_an_aborted_record_supersedes_nothing(bench: Workbench) -> None:
    log = await bench.open(CONFIG)
    put(log, (b"k", b"committed"))
    put(log, (b"k", b"aborted"), producer_id=10)
    end_transaction(log, 10, ControlType.ABORT)
    put(log, (b"z", b""))
    await cleaned(log, RealDisk())
    values = [value for _, value in read_values(log)]
    assert b"committed" in values
    assert b"aborted" not in values


async def test_the_index_names_an_aborted_transaction_until_its_batches_are_gone(
    bench: Workbench,
) -> None:
    log = await bench.open(CONFIG)
    disk = RealDisk()
    put(log, (b"k", b"aborted"), producer_id=10)
    end_transaction(log, 10, ControlType.ABORT)
    put(log, (b"z", b""))
    clean_to = await cleaned(log, disk)
    (entry,) = aborts_of(log.segments[0])
    assert (entry.producer_id, entry.first_offset, entry.last_offset) == (10, 0, 1)
    # The last batch of an active producer stays, empty, and with it the marker.
    assert [(header.base_offset, header.record_count) for header in headers_of(log)] == [
        (0, 0), (1, 1), (2, 1)
    ]  # fmt: skip
    put(log, (b"k", b"committed"), producer_id=10, sequence=1)
    end_transaction(log, 10, ControlType.COMMIT)
    clean_to = await cleaned(log, disk, first_dirty=clean_to)
    assert headers_of(log)[0].is_control, "the empty batch is no producer's last one any longer"
    put(log, (b"y", b""))
    clean_to = await cleaned(log, disk, first_dirty=clean_to)
    assert aborts_of(log.segments[0]) == []
    assert headers_of(log)[0].delete_horizon_ms == NOW_MS + RETENTION_MS
    put(log, (b"y", b""))
    await cleaned(log, disk, first_dirty=clean_to, now_ms=NOW_MS + RETENTION_MS)
    assert not any(header.is_control and header.base_offset == 1 for header in headers_of(log))


async def test_no_horizon_is_set_before_all_of_a_batch_is_clean(bench: Workbench) -> None:
    log = await bench.open(CONFIG)
    disk = RealDisk()
    put(log, (b"a", b"1"), (b"b", None), (b"c", b"1"), (b"d", b"1"), (b"e", b"1"))
    clean_to = await cleaned(log, disk, map_keys=2)
    assert clean_to == 2
    assert headers_of(log)[0].delete_horizon_ms is None
    clean_to = await cleaned(log, disk, first_dirty=2, is_rolled=False, now_ms=NOW_MS + 10)
    assert clean_to == 5
    assert headers_of(log)[0].delete_horizon_ms == NOW_MS + 10 + RETENTION_MS


async def test_a_new_segment_ends_where_its_last_source_ended(bench: Workbench) -> None:
    log = await bench.open(CONFIG)
    for _ in range(2):
        put(log, (b"a", b"1"))
        put(log, (None, b"no key"))
        await log.roll(now_ms=NOW_MS)
    put(log, (b"a", b"2"))
    await cleaned(log, RealDisk())
    assert [(h.base_offset, h.record_count) for h in headers_of(log)] == [(4, 1)]
    assert [segment.base_offset for segment in log.segments] == [0, 5]


async def test_a_group_of_records_that_all_go_keeps_its_last_batch_empty(
    bench: Workbench,
) -> None:
    config = LogConfig(segment_bytes=100)
    log = await bench.open(config)
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    await cleaned(log, RealDisk())
    assert [(h.base_offset, h.record_count) for h in headers_of(log)] == [(0, 0), (1, 1)]
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]


async def test_records_below_the_start_of_the_log_go(bench: Workbench) -> None:
    log = await bench.open(CONFIG)
    put(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    log.update_high_watermark(log.end_offset)
    await log.delete_records_before(Offset(1))
    await cleaned(log, RealDisk())
    assert read_values(log, 1) == [(1, b"1"), (2, b"1")]
    assert headers_of(log)[0].record_count == 2


async def test_a_segment_that_stays_as_it_is_is_not_written_again(bench: Workbench) -> None:
    log = await bench.open(LogConfig(segment_bytes=100))
    disk = RealDisk()
    put(log, (b"a", b"1"))
    put(log, (b"b", b"1"))
    put(log, (b"b", b"2"))
    await log.roll(now_ms=NOW_MS)
    await log.flush()
    log.update_high_watermark(log.end_offset)
    _, groups = await clean_log(disk, log, task_of(log, now_ms=NOW_MS))
    assert [group.sources for group in groups] == [(1,)]


@pytest.mark.parametrize("at", [5, 40, 75])
async def test_a_corrupt_batch_is_named_and_nothing_is_touched(bench: Workbench, at: int) -> None:
    log = await bench.open(CONFIG)
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    await log.roll(now_ms=NOW_MS)
    await log.flush()
    log.update_high_watermark(log.end_offset)
    file = log.segments[0].file
    file.pwrite(at, [bytes([file.pread(at, 1)[0] ^ 0xFF])])
    before = file.pread(0, 1_000)
    with pytest.raises(CorruptDataError, match=r"00000000000000000000\.log: position 0"):
        await clean_log(RealDisk(), log, task_of(log, now_ms=NOW_MS))
    assert file.pread(0, 1_000) == before
    assert not [name for name in await RealDisk().listdir(log.directory) if "cleaned" in name]


async def test_timestamps_stay_when_a_horizon_is_set(bench: Workbench) -> None:
    log = await bench.open(CONFIG)
    records = [(NOW_MS - 77_777, b"a", b"1"), (NOW_MS + 5, b"b", None), (3, b"c", b"3")]
    append(log, build_batch(records))
    await cleaned(log, RealDisk())
    ((at, header),) = batches(data := log.segments[0].file.pread(0, 1_000))
    assert header.delete_horizon_ms == NOW_MS + RETENTION_MS
    assert header.max_timestamp == NOW_MS + 5
    found = [(r.timestamp_ms, r.key, r.value) for r in scan(data, at, header)]
    assert found == records


async def test_an_empty_batch_has_no_timestamp_and_its_segment_opens_again(
    bench: Workbench,
) -> None:
    log = await bench.open(LogConfig(segment_bytes=100))
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    await cleaned(log, RealDisk())
    assert [header.max_timestamp for header in headers_of(log)] == [-1, NOW_MS]
    log = await bench.close_and_open(log)
    assert [segment.max_timestamp_ms for segment in log.segments[:2]] == [-1, NOW_MS]
    log = await bench.kill_and_open(log, recovery_point=log.end_offset)
    assert read_values(log) == [(1, b"2")]
