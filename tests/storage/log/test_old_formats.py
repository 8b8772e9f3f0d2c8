"""A log that an old broker wrote, in the formats v0 and v1, is kept and served unchanged."""

from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from ottla.model.errors import RefusedError
from ottla.model.ids import Offset
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import Log
from ottla.storage.segments.files import LOG, file_name
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import build_batch
from ottla.wire.compression import Codec
from ottla.wire.legacy import batches_of_any_format, messages
from tests.storage.log.workbench import NOW_MS, Workbench, append

CONFIG = LogConfig(index_interval_bytes=0, segment_index_bytes=1_200)
FORMATS = [(0, Codec.NONE), (0, Codec.GZIP), (1, Codec.NONE), (1, Codec.GZIP), (1, Codec.LZ4)]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    bench = Workbench(RealDisk(), str(tmp_path / "orders-2"))
    yield bench
    bench.let_go()


def old_set(magic: int, codec: Codec, base_offset: int, count: int = 3) -> bytes:
    """A message set as an old leader stored it: a wrapper has the last offset and timestamp."""
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=int(codec), batch_size=1 << 16)
    for i in range(count):
        at = i if magic and codec is not Codec.NONE else base_offset + i
        builder.append(at, NOW_MS + base_offset + i, b"k", b"%d" % (base_offset + i))
    data = bytearray(builder.build())
    if codec is not Codec.NONE:
        data[0:8] = (base_offset + count - 1).to_bytes(8, "big")
        if magic:
            data[18:26] = (NOW_MS + base_offset + count - 1).to_bytes(8, "big")
            data[12:16] = crc32(data[16:]).to_bytes(4, "big")
    return bytes(data)


def old_log(magic: int, codec: Codec) -> bytes:
    return b"".join(old_set(magic, codec, base) for base in (0, 3, 6))


def write(bench: Workbench, data: bytes) -> Path:
    Path(bench.directory).mkdir(parents=True, exist_ok=True)
    path = Path(bench.directory, file_name(0, LOG))
    path.write_bytes(data)
    return path


def stored(log: Log, start: int = 0) -> bytes:
    read = log.read(Offset(start), bytes_max=1 << 20, end_offset=log.end_offset, at_least_one=True)
    assert read.slice is not None
    return read.slice.read()


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
async def test_what_an_old_broker_wrote_is_recovered_and_served_as_it_is(
    bench: Workbench, magic: int, codec: Codec
) -> None:
    data = old_log(magic, codec)
    write(bench, data)

    log = await bench.open(CONFIG)

    assert (log.end_offset, stored(log)) == (9, data)
    for start in range(9):
        found = list(messages(stored(log, start)))
        assert found[0].offset <= start
        assert [each.value for each in found if each.offset >= start] == [
            b"%d" % i for i in range(start, 9)
        ]


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
async def test_new_batches_follow_old_ones_in_one_segment(
    bench: Workbench, magic: int, codec: Codec
) -> None:
    data = old_log(magic, codec)
    write(bench, data)
    log = await bench.open(CONFIG)

    assert append(log, build_batch([(NOW_MS + 50, b"k", b"new")])).base_offset == 9
    whole = stored(log)
    assert whole.startswith(data)

    for is_clean in (False, True):
        log = await (bench.close_and_open(log) if is_clean else bench.kill_and_open(log))
        assert (log.end_offset, stored(log)) == (10, whole)
        assert await log.offset_for_timestamp(NOW_MS + 50, Offset(10)) == (9, NOW_MS + 50, 0)
    await log.roll(now_ms=NOW_MS)
    log = await bench.close_and_open(log)
    assert stored(log) == whole


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
async def test_a_torn_old_log_is_cut_to_its_last_whole_entry(
    bench: Workbench, magic: int, codec: Codec
) -> None:
    data = old_log(magic, codec)
    ends = [0, *(at + header.size_bytes for at, header in batches_of_any_format(data))]
    for length in sorted(
        {*range(0, len(data), 17), *(e + d for e in ends for d in (0, 1, -1, 20))}
    ):
        if not 0 <= length <= len(data):
            continue
        path = write(bench, data[:length])
        log = await bench.open(CONFIG)
        kept = max(end for end in ends if end <= length)
        assert path.stat().st_size == kept, f"of {length} bytes"
        log.abandon()
        for other in Path(bench.directory).iterdir():
            other.unlink()


async def test_a_flipped_byte_cuts_an_old_log_before_its_entry(bench: Workbench) -> None:
    data = old_log(1, Codec.GZIP)
    second = len(old_set(1, Codec.GZIP, 0))
    end = second + len(old_set(1, Codec.GZIP, 3))
    for at in range(second + 8, end, 3):  # an offset is not covered by its CRC
        damaged = bytearray(data)
        damaged[at] ^= 0x42
        path = write(bench, bytes(damaged))
        log = await bench.open(CONFIG)
        assert path.stat().st_size == second, f"byte {at}"
        log.abandon()
        for other in Path(bench.directory).iterdir():
            other.unlink()


async def test_records_of_v1_are_found_by_their_time(bench: Workbench) -> None:
    for codec in (Codec.NONE, Codec.GZIP):
        write(bench, old_log(1, codec))
        log = await bench.open(CONFIG)
        for i in range(9):
            found = await log.offset_for_timestamp(NOW_MS + i, log.end_offset)
            assert found == (i, NOW_MS + i, -1)
        assert await log.max_timestamp_offset(log.end_offset) == (8, NOW_MS + 8, -1)
        await log.truncate_fully_and_start_at(Offset(0))
        log.abandon()


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
async def test_a_follower_copies_what_its_leader_has(
    bench: Workbench, magic: int, codec: Codec
) -> None:
    data = old_log(magic, codec)
    log = await bench.open(CONFIG)

    log.append_as_follower(memoryview(data[:-5]), now_ms=NOW_MS)
    log.append_as_follower(memoryview(data[log.size_bytes :]), now_ms=NOW_MS)

    assert (log.end_offset, stored(log)) == (9, data)
    damaged = bytearray(old_set(magic, codec, 9))
    damaged[-1] ^= 1
    with pytest.raises(RefusedError, match="CORRUPT_MESSAGE"):
        log.append_as_follower(memoryview(damaged), now_ms=NOW_MS)


async def test_a_truncation_cuts_old_entries_whole(bench: Workbench) -> None:
    data = old_log(1, Codec.GZIP)
    write(bench, data)
    log = await bench.open(CONFIG)

    await log.truncate_to(Offset(7))

    assert log.end_offset == 6
    assert stored(log) == data[: len(stored(log))]
    assert [each.offset for each in messages(stored(log))] == [0, 1, 2, 3, 4, 5]


async def test_a_leader_still_takes_no_old_format(bench: Workbench) -> None:
    log = await bench.open(CONFIG)
    with pytest.raises(RefusedError, match="INVALID_RECORD"):
        append(log, old_set(1, Codec.NONE, 0, count=1))
