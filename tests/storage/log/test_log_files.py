"""Every file of a partition, byte for byte as Kafka writes it, from fixed inputs."""

from collections.abc import Iterator
from pathlib import Path
from struct import pack
from typing import Any
from uuid import UUID

import pytest
from crc32c import crc32c

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Epoch, Offset, ProducerId
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.producers.producer_snapshot import decode_snapshot, encode_snapshot
from ottla.storage.segments.append_info import AppendOrigin
from ottla.storage.segments.epoch_cache import EpochCache, decode_epochs
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.segments.partition_metadata import (
    decode_partition_metadata,
    encode_partition_metadata,
    is_unfinished,
)
from ottla.wire.batch_builder import ControlType, build_batch, build_end_transaction_marker
from tests.storage.log.workbench import NOW_MS, Workbench, append

INDEXED_EVERY_BATCH = LogConfig(index_interval_bytes=0)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    bench = Workbench(RealDisk(), str(tmp_path / "orders-2"))
    yield bench
    bench.let_go()


def file_of(bench: Workbench, name: str) -> bytes:
    return Path(bench.directory, name).read_bytes()


def record(value: bytes, *, offset_delta: int, timestamp_delta: int) -> bytes:
    """One record whose numbers are all below 64, so that each varint is one byte, doubled."""
    body = bytes([0, 2 * timestamp_delta, 2 * offset_delta, 1, 2 * len(value)]) + value + b"\0"
    return bytes([2 * len(body)]) + body


def batch(
    records: bytes, count: int, *, base_offset: int, epoch: int, first_ms: int, last_ms: int
) -> bytes:
    after_crc = pack(">hiqqqhii", 0, count - 1, first_ms, last_ms, -1, -1, -1, count)
    crc = crc32c(after_crc + records)
    length = 4 + 1 + 4 + len(after_crc) + len(records)
    return pack(">qiibI", base_offset, length, epoch, 2, crc) + after_crc + records


async def test_the_log_file_holds_the_producers_bytes_with_offset_and_epoch_set(
    bench: Workbench,
) -> None:
    log = await bench.open(LogConfig())
    records = record(b"a", offset_delta=0, timestamp_delta=0) + record(
        b"b", offset_delta=1, timestamp_delta=3
    )
    sent = batch(records, 2, base_offset=0, epoch=-1, first_ms=NOW_MS, last_ms=NOW_MS + 3)

    append(log, sent, leader_epoch=7)
    append(log, sent, leader_epoch=9)

    stored = file_of(bench, "00000000000000000000.log")
    assert stored == b"".join(
        batch(
            records,
            2,
            base_offset=base_offset,
            epoch=epoch,
            first_ms=NOW_MS,
            last_ms=NOW_MS + 3,
        )
        for base_offset, epoch in ((0, 7), (2, 9))
    )


async def test_indexes_hold_an_entry_for_each_batch_after_the_interval(bench: Workbench) -> None:
    log = await bench.open(INDEXED_EVERY_BATCH)
    sent = build_batch([(NOW_MS, None, b"a"), (NOW_MS + 5, None, b"b")])
    later = build_batch([(NOW_MS + 9, None, b"c")])
    size = len(sent)
    for each in (sent, sent, later):
        append(log, each)

    await log.close()

    # The first batch has no entry: no bytes lie before it (LogSegment.append).
    offsets = pack(">ii", 3, size) + pack(">ii", 4, 2 * size)
    times = pack(">qi", NOW_MS + 5, 1) + pack(">qi", NOW_MS + 9, 4)
    assert file_of(bench, "00000000000000000000.index") == offsets
    assert file_of(bench, "00000000000000000000.timeindex") == times


async def test_a_batch_is_indexed_only_when_more_than_the_interval_lies_before_it(
    bench: Workbench,
) -> None:
    sent = build_batch([(NOW_MS, None, b"a")])
    log = await bench.open(LogConfig(index_interval_bytes=2 * len(sent)))
    for _ in range(8):
        append(log, sent)

    await log.close()

    # Three batches are the first to exceed the interval of two: batches 3 and 6 are indexed.
    expected = pack(">ii", 3, 3 * len(sent)) + pack(">ii", 6, 6 * len(sent))
    assert file_of(bench, "00000000000000000000.index") == expected


async def test_an_active_segments_indexes_are_preallocated_and_trimmed_at_the_roll(
    bench: Workbench,
) -> None:
    log = await bench.open(LogConfig(segment_index_bytes=1000, index_interval_bytes=0))
    append(log, build_batch([(NOW_MS, None, b"a")]))
    append(log, build_batch([(NOW_MS + 1, None, b"a")]))
    index = Path(bench.directory, "00000000000000000000.index")
    time_index = Path(bench.directory, "00000000000000000000.timeindex")
    assert (index.stat().st_size, time_index.stat().st_size) == (1000, 996)

    await log.roll(now_ms=NOW_MS)

    assert (index.stat().st_size, time_index.stat().st_size) == (8, 12)


async def test_the_producer_snapshot_at_a_roll_is_kafkas(bench: Workbench) -> None:
    log = await bench.open(LogConfig())
    two = [(NOW_MS, None, b"a"), (NOW_MS + 4, None, b"b")]
    append(log, build_batch(two, producer_id=ProducerId(5), producer_epoch=3, base_sequence=0))
    append(log, build_batch(two, producer_id=ProducerId(5), producer_epoch=3, base_sequence=2))
    append(
        log,
        build_batch(
            two, producer_id=ProducerId(6), producer_epoch=0, base_sequence=0, is_transactional=True
        ),
    )

    await log.roll(now_ms=NOW_MS)

    body = pack(">i", 2)
    body += pack(">qhiqiqiq", 5, 3, 3, 3, 1, NOW_MS + 4, -1, -1)
    body += pack(">qhiqiqiq", 6, 0, 1, 5, 1, NOW_MS + 4, -1, 4)
    expected = pack(">hI", 1, crc32c(body)) + body
    assert file_of(bench, "00000000000000000006.snapshot") == expected
    assert encode_snapshot(decode_snapshot(expected, Offset(6))) == expected


@pytest.mark.parametrize("damage", ["cut", "flipped", "version", "count"])
def test_a_producer_snapshot_that_lies_is_refused(damage: str) -> None:
    body = pack(">i", 1) + pack(">qhiqiqiq", 5, 3, 3, 3, 1, NOW_MS, -1, -1)
    data = bytearray(pack(">hI", 1, crc32c(body)) + body)
    if damage == "cut":
        del data[-1]
    elif damage == "flipped":
        data[20] ^= 1
    elif damage == "version":
        data[1] = 2
    else:
        body = pack(">i", 2) + body[4:]
        data = bytearray(pack(">hI", 1, crc32c(body)) + body)

    with pytest.raises(CorruptDataError):
        decode_snapshot(bytes(data), Offset(4))


async def test_the_transaction_index_appears_with_the_first_abort(bench: Workbench) -> None:
    log = await bench.open(LogConfig())
    name = "00000000000000000000.txnindex"
    for producer_id in (4, 5):
        append(
            log,
            build_batch(
                [(NOW_MS, None, b"x")],
                producer_id=ProducerId(producer_id),
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            ),
        )
    assert not Path(bench.directory, name).exists()

    append(
        log,
        build_end_transaction_marker(
            ControlType.ABORT,
            timestamp_ms=NOW_MS,
            producer_id=ProducerId(5),
            producer_epoch=0,
            coordinator_epoch=Epoch(1),
        ),
        origin=AppendOrigin.COORDINATOR,
    )

    # Producer 4's transaction is still open from offset 0 on: that is the stable end.
    assert file_of(bench, name) == pack(">hqqqq", 0, 5, 1, 2, 0)
    assert log.aborted_transactions(Offset(0), Offset(3)) == [(5, 1)]


async def test_the_epoch_checkpoint_names_each_leadership_and_its_start(bench: Workbench) -> None:
    log = await bench.open(LogConfig())
    one = build_batch([(NOW_MS, None, b"x")])
    for epoch in (0, 0, 3, 4):
        append(log, one, leader_epoch=epoch)

    await log.flush()

    assert file_of(bench, "leader-epoch-checkpoint") == b"0\n3\n0 0\n3 2\n4 3\n"


def test_an_empty_epoch_checkpoint_holds_no_epochs() -> None:
    assert decode_epochs(b"").entries == ()
    assert EpochCache().encode() == b"0\n0\n"


@pytest.mark.parametrize(
    "text", ["1\n0\n", "0\n2\n0 0\n", "0\n2\n1 0\n1 5\n", "0\n2\n0 5\n1 5\n", "0\n1\n0\n", "x\n"]
)
def test_an_epoch_checkpoint_that_lies_is_refused(text: str) -> None:
    with pytest.raises(CorruptDataError):
        decode_epochs(text.encode())


async def test_partition_metadata_is_written_before_the_first_record(bench: Workbench) -> None:
    await bench.open(LogConfig())

    expected = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"
    assert file_of(bench, "partition.metadata") == expected


def test_partition_metadata_spells_ids_as_kafka_does() -> None:
    topic_id = UUID("dea28ae7-9ed8-4134-954c-7ae3aabd2e06")

    data = encode_partition_metadata(topic_id)

    assert data == b"version: 0\ntopic_id: 3qKK557YQTSVTHrjqr0uBg"
    assert decode_partition_metadata(data) == topic_id


async def test_kafka_python_reads_every_batch_of_a_segment(bench: Workbench) -> None:
    from kafka.record import MemoryRecords

    log = await bench.open(LogConfig())
    sent = [[(NOW_MS + i, b"k%d" % i, b"v%d" % j) for j in range(i + 1)] for i in range(20)]
    for records in sent:
        append(log, build_batch(records))
    await log.flush()

    parsed: list[Any] = []
    reader = MemoryRecords(file_of(bench, "00000000000000000000.log"))
    while (found := reader.next_batch()) is not None:
        assert found.validate_crc()
        parsed.append([(r.offset, r.timestamp, r.key, r.value) for r in found])

    offset = 0
    for records, seen in zip(sent, parsed, strict=True):
        assert seen == [(offset + i, *fields) for i, fields in enumerate(records)]
        offset += len(records)


def test_a_part_of_partition_metadata_is_known_from_a_damaged_file() -> None:
    whole = encode_partition_metadata(UUID(int=7))
    assert not is_unfinished(whole)
    assert not is_unfinished(whole + b"\n")
    for size in range(len(whole)):
        assert is_unfinished(whole[:size])
        assert is_unfinished(whole[:size] + bytes(len(whole) - size))
        assert is_unfinished(bytes(size) + whole[size:]) == (size > 0)
    assert not is_unfinished(b"damaged")
    assert not is_unfinished(b"version: 1\n")
