"""The maximum timestamp of a batch is that of its records, and an invalid header spoils nothing
else."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import Log
from ottla.storage.log.validate import RecordsToInspectError, accepted
from ottla.storage.segments.append_info import AppendOrigin
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch import HEADER, check_crc, header_of, parse_header
from ottla.wire.batch_builder import build_batch
from ottla.wire.compression import Codec, decompress
from ottla.wire.records import read_varint, record_body
from tests.storage.log.workbench import NOW_MS, Workbench, append

FULL = LogConfig(is_every_record_checked=True)
LATE_MS = 5_000_000
RECORDS = [(NOW_MS, b"k", b"v"), (NOW_MS + 7, b"k", b"w"), (NOW_MS + 3, b"k", b"x")]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    bench = Workbench(RealDisk(), str(tmp_path / "orders-2"))
    yield bench
    bench.let_go()


def with_header(batch: bytes, **fields: int) -> bytes:
    """Change header fields and set the right CRC."""
    header = {**parse_header(batch)._asdict(), **fields}
    changed = HEADER.pack(*header.values()) + batch[HEADER.size :]
    return changed[:17] + crc32c(changed[21:]).to_bytes(4, "big") + changed[21:]


def stored(log: Log) -> bytes:
    read = log.read(Offset(0), bytes_max=1 << 30, end_offset=log.end_offset, at_least_one=True)
    assert read.slice is not None
    return read.slice.read()


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("claimed", [NOW_MS - LATE_MS, NOW_MS, NOW_MS + 9])
async def test_full_validation_makes_the_maximum_timestamp_the_records(
    bench: Workbench, codec: Codec, claimed: int
) -> None:
    log = await bench.open(FULL)
    sent = build_batch(RECORDS, codec=codec)

    info = append(log, with_header(sent, max_timestamp=claimed))

    assert info.max_timestamp == NOW_MS + 7
    header = parse_header(stored(log))
    assert header.max_timestamp == NOW_MS + 7
    assert check_crc(stored(log), 0, header)
    assert stored(log)[21:] == sent[21:]


async def test_a_batch_that_is_stored_in_another_codec_gets_its_records_maximum(
    bench: Workbench,
) -> None:
    log = await bench.open(LogConfig(codec=Codec.ZSTD))

    append(log, with_header(build_batch(RECORDS), max_timestamp=NOW_MS - LATE_MS))

    assert parse_header(stored(log)).max_timestamp == NOW_MS + 7


@pytest.mark.parametrize("config", [LogConfig(), FULL])
async def test_a_header_too_low_breaks_neither_look_up_nor_retention(
    bench: Workbench, config: LogConfig
) -> None:
    config = replace(config, retention_ms=LATE_MS // 2, segment_bytes=1_000)
    log = await bench.open(config)
    append(log, with_header(build_batch(RECORDS), max_timestamp=NOW_MS - LATE_MS))
    append(log, build_batch([(NOW_MS - 2 * LATE_MS, b"k", bytes(900))]))
    log.update_high_watermark(log.end_offset)

    assert await log.offset_for_timestamp(NOW_MS + 1, log.end_offset) == (1, NOW_MS + 7, 0)
    assert await log.max_timestamp_offset(log.end_offset) == (1, NOW_MS + 7, 0)
    assert await log.delete_old_segments(NOW_MS) == 0


async def test_a_header_too_high_hides_no_other_batch_from_the_largest_timestamp(
    bench: Workbench,
) -> None:
    log = await bench.open(LogConfig())
    append(log, build_batch([(NOW_MS + 50, b"k", b"v")]))
    for claimed in range(NOW_MS + 900, NOW_MS + 910):
        append(log, with_header(build_batch([(NOW_MS, b"k", b"v")]), max_timestamp=claimed))
    append(log, build_batch([(NOW_MS + 60, b"k", b"v"), (NOW_MS + 80, b"k", b"v")]))

    assert await log.max_timestamp_offset(log.end_offset) == (12, NOW_MS + 80, 0)
    assert await log.max_timestamp_offset(Offset(11)) == (0, NOW_MS + 50, 0)
    assert await log.offset_for_timestamp(NOW_MS + 70, log.end_offset) == (12, NOW_MS + 80, 0)


def test_a_large_batch_that_contradicts_itself_is_left_to_a_worker() -> None:
    large = with_header(
        build_batch([(NOW_MS, b"k", b"v")] * 1_000, codec=Codec.GZIP), max_timestamp=NOW_MS - 1
    )

    with pytest.raises(RecordsToInspectError):
        accepted(memoryview(large), AppendOrigin.CLIENT, LogConfig(), NOW_MS)

    fields, _, taken_bytes = accepted(
        memoryview(large), AppendOrigin.CLIENT, LogConfig(), NOW_MS, is_in_thread=True
    )
    assert (header_of(fields).max_timestamp, taken_bytes) == (NOW_MS, len(large))


async def test_append_time_stands_whatever_the_header_claims(bench: Workbench) -> None:
    log = await bench.open(replace(FULL, is_log_append_time=True))

    append(log, with_header(build_batch(RECORDS), max_timestamp=5))

    assert parse_header(stored(log)).max_timestamp == NOW_MS


@pytest.mark.parametrize(
    ("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 9, 12), (Codec.ZSTD, -5, 19)]
)
async def test_the_level_of_the_topics_codec_is_that_of_its_setting(
    bench: Workbench, codec: Codec, low: int, high: int
) -> None:
    text = b"".join(b"%d has %d at %d; " % (i, i * i % 97, i * 31 % 89) for i in range(3_000))
    sent = build_batch([(NOW_MS, b"k", text)])
    sizes = []
    for level in (low, high):
        log = await bench.open(LogConfig(codec=codec, compression_level=level))
        append(log, sent)
        data = stored(log)
        assert text in decompress(codec, data[HEADER.size :])
        sizes.append(len(data))
        await log.truncate_fully_and_start_at(Offset(0))
        log.abandon()

    assert sizes[1] < sizes[0]


# max.decompressed.message.bytes


@pytest.mark.parametrize("codec", list(Codec))
async def test_a_decompressed_record_above_the_bound_is_refused(
    bench: Workbench, codec: Codec
) -> None:
    log = await bench.open(LogConfig(max_decompressed_record_bytes=1_000))
    large = [(NOW_MS, None, bytes(size)) for size in (10, 2_000)]

    if codec is Codec.NONE:
        append(log, build_batch(large, codec=codec))
        return
    with pytest.raises(RefusedError) as caught:
        append(log, build_batch(large, codec=codec))
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert "exceeds the configured maximum record size of 1000" in caught.value.message


@pytest.mark.parametrize("recoded", [None, Codec.ZSTD])
async def test_the_bound_is_inclusive_and_holds_where_batches_are_recoded(
    bench: Workbench, recoded: Codec | None
) -> None:
    body_bytes = 1_000
    batch = build_batch([(NOW_MS, None, bytes(990))], codec=Codec.GZIP)
    header = parse_header(batch)
    length, _ = read_varint(record_body(batch, 0, header), 0, body_bytes)

    log = await bench.open(LogConfig(codec=recoded, max_decompressed_record_bytes=length))
    append(log, batch)
    bench.let_go()
    log = await bench.open(LogConfig(codec=recoded, max_decompressed_record_bytes=length - 1))
    with pytest.raises(RefusedError, match="maximum record size"):
        append(log, batch)
