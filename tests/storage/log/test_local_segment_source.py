"""A closed segment, as its upload reads it: whole, durable, or refused."""

from pathlib import Path

import pytest

from ottla.model.ids import Epoch, Offset, ProducerId
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import Log
from ottla.storage.producers.producer_snapshot import decode_snapshot
from ottla.storage.segments.append_info import AppendOrigin
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.tier.segment_source import SegmentSource
from ottla.wire.batch_builder import ControlType, build_batch, build_end_transaction_marker
from tests.storage.log.workbench import NOW_MS, Workbench, append

CONFIG = LogConfig(index_interval_bytes=100, is_tiered=True, local_retention_bytes=0)
PRODUCER = ProducerId(7)


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(RealDisk(), str(tmp_path / "orders-2"))


async def filled(bench: Workbench) -> Log:
    """Return a log of two closed segments, the first with an aborted transaction."""
    log = await bench.open(CONFIG)
    for sequence in range(4):
        batch = build_batch(
            [(NOW_MS + sequence, None, bytes(90))],
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        append(log, batch, leader_epoch=sequence // 2)
    marker = build_end_transaction_marker(
        ControlType.ABORT,
        timestamp_ms=NOW_MS,
        producer_id=PRODUCER,
        producer_epoch=0,
        coordinator_epoch=Epoch(0),
    )
    append(log, marker, leader_epoch=1, origin=AppendOrigin.COORDINATOR)
    await log.roll(now_ms=NOW_MS)
    append(log, build_batch([(NOW_MS, None, b"v")]), leader_epoch=2)
    await log.roll(now_ms=NOW_MS)
    append(log, build_batch([(NOW_MS, None, b"v")]), leader_epoch=3)
    log.update_high_watermark(log.end_offset)
    return log


async def test_a_source_has_the_files_of_its_segment(bench: Workbench) -> None:
    log = await filled(bench)

    source: SegmentSource = log.segment_source(Offset(0))

    assert (source.base_offset, source.end_offset) == (0, 5)
    assert source.max_timestamp_ms == NOW_MS + 3
    assert source.epochs == ((0, 0), (1, 2))
    assert log.segment_source(Offset(5)).epochs == ((0, 0), (1, 2), (2, 5))
    base = Path(bench.directory, "00000000000000000000")
    data = base.with_suffix(".log").read_bytes()
    assert len(data) == source.size_bytes
    assert await source.read_log(3, source.size_bytes - 5) == data[3:-5]
    assert await source.offset_index() == base.with_suffix(".index").read_bytes() != b""
    assert await source.time_index() == base.with_suffix(".timeindex").read_bytes() != b""
    assert await source.transaction_index() == base.with_suffix(".txnindex").read_bytes() != b""
    assert await log.segment_source(Offset(5)).transaction_index() == b""
    bench.let_go()


async def test_a_source_computes_a_producer_snapshot_that_is_missing(bench: Workbench) -> None:
    log = await filled(bench)
    source = log.segment_source(Offset(0))
    snapshot = Path(bench.directory, "00000000000000000005.snapshot")
    known = await source.producer_snapshot()
    assert known == snapshot.read_bytes()
    assert PRODUCER in decode_snapshot(known, Offset(5)).producers

    snapshot.write_bytes(known[:-1])
    assert await source.producer_snapshot() == known
    snapshot.unlink(missing_ok=True)
    assert await source.producer_snapshot() == known
    bench.let_go()


async def test_the_active_segment_and_others_have_no_source(bench: Workbench) -> None:
    log = await filled(bench)
    for offset in (1, 6, 7):
        with pytest.raises(FileNotFoundError):
            log.segment_source(Offset(offset))
    bench.let_go()


async def test_a_source_outlives_its_segment_but_not_its_indexes(bench: Workbench) -> None:
    log = await filled(bench)
    source = log.segment_source(Offset(0))
    data = await source.read_log(0, source.size_bytes)
    log.copied_offset = Offset(4)

    assert await log.delete_local_segments(NOW_MS) == 1

    assert await source.read_log(0, source.size_bytes) == data
    for read in (source.offset_index, source.transaction_index, source.producer_snapshot):
        with pytest.raises(FileNotFoundError):
            await read()
    bench.let_go()


async def test_a_source_of_a_truncated_segment_is_refused(bench: Workbench) -> None:
    log = await filled(bench)
    source = log.segment_source(Offset(0))

    await log.truncate_to(Offset(2))

    with pytest.raises(FileNotFoundError):
        await source.read_log(0, source.size_bytes)
    with pytest.raises(FileNotFoundError):
        await source.time_index()
    bench.let_go()


async def test_a_log_that_is_not_copied_any_longer_keeps_to_total_retention(
    bench: Workbench,
) -> None:
    log = await filled(bench)
    log.config = LogConfig(
        is_tiered=True, is_copied=False, local_retention_bytes=0, retention_bytes=100
    )

    await log.delete_local_segments(NOW_MS)

    assert log.log_start_offset == log.local_start_offset == 5, "the log start moves, too"
    bench.let_go()
