"""Logs that an old broker wrote are cleaned in their own formats, v0 and v1."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset
from ottla.storage.cleaner.legacy_entries import filtered_entry
from ottla.storage.cleaner.offset_map import SLOT_BYTES, SlotTable, keyed_digest
from ottla.storage.cleaner.record_work import KeepRule
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import Log
from ottla.storage.segments.files import LOG, file_name
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch import MAGIC
from ottla.wire.batch_builder import build_batch
from ottla.wire.compression import Codec
from ottla.wire.legacy import LegacyMessage, batches_of_any_format, messages, shallow_messages
from ottla.wire.records import scan
from tests.search_length import length
from tests.storage.cleaner.cleaning_bench import clean_log, task_of
from tests.storage.log.workbench import NOW_MS, Workbench, append

pytestmark = pytest.mark.usefixtures("form")

CONFIG = LogConfig(index_interval_bytes=0, segment_index_bytes=1_200)
FORMATS = [
    (0, Codec.NONE),
    (0, Codec.GZIP),
    (0, Codec.SNAPPY),
    (1, Codec.NONE),
    (1, Codec.GZIP),
    (1, Codec.SNAPPY),
    (1, Codec.LZ4),
]
ALL = KeepRule(log_start_offset=0, clean_to=1 << 40, now_ms=NOW_MS)


class Old(NamedTuple):
    """A record of an old producer; its timestamp is NOW_MS and its offset."""

    key: bytes | None
    value: bytes | None


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    bench = Workbench(RealDisk(), str(tmp_path / "orders-2"))
    yield bench
    bench.let_go()


def old_set(magic: int, codec: Codec, base_offset: int, records: Sequence[Old]) -> bytes:
    """A message set as an old leader stored it: a wrapper has the last offset and timestamp."""
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=int(codec), batch_size=1 << 16)
    for i, record in enumerate(records):
        at = i if magic and codec is not Codec.NONE else base_offset + i
        builder.append(at, NOW_MS + base_offset + i, record.key, record.value)
    data = bytearray(builder.build())
    if codec is not Codec.NONE:
        last = base_offset + len(records) - 1
        data[0:8] = last.to_bytes(8, "big")
        if magic:
            data[18:26] = (NOW_MS + last).to_bytes(8, "big")
            data[12:16] = crc32(data[16:]).to_bytes(4, "big")
    return bytes(data)


def map_of(found: Sequence[LegacyMessage]) -> SlotTable:
    table = SlotTable(100 * SLOT_BYTES, 0.9, keyed_digest(7))
    for message in found:
        if message.key is not None:
            table.put(message.key, message.offset)
    return table


keys = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"c"]))
values = st.one_of(st.none(), st.binary(max_size=20))


@settings(max_examples=length(50, 150), deadline=None)
@given(
    form=st.sampled_from(FORMATS),
    records=st.lists(st.builds(Old, keys, values), min_size=1, max_size=8),
    base_offset=st.integers(0, 1 << 33),
    are_tombstones_kept=st.booleans(),
)
def test_what_stays_of_a_wrapper_is_what_stays_of_its_messages(
    form: tuple[int, Codec], records: list[Old], base_offset: int, are_tombstones_kept: bool
) -> None:
    magic, codec = form
    whole = old_set(magic, codec, base_offset, records)
    entries = [whole[at : at + header.size_bytes] for at, header in batches_of_any_format(whole)]
    before = list(messages(whole))
    latest = {message.key: message.offset for message in before}
    expected = [
        message
        for message in before
        if message.key is not None
        and message.offset == latest[message.key]
        and (message.value is not None or are_tombstones_kept)
    ]
    table = map_of(before)
    after: list[LegacyMessage] = []
    keyless_count = 0
    for entry in entries:
        filtered = filtered_entry(entry, table, ALL, are_tombstones_kept=are_tombstones_kept)
        keyless_count += filtered.keyless_count
        if filtered.entry is not None:
            after += messages(filtered.entry)
            (wrapper,) = shallow_messages(filtered.entry)
            assert (wrapper.magic, wrapper.codec) == (magic, codec)
            assert wrapper.offset == after[-1].offset
            if magic and codec is not Codec.NONE:
                assert (
                    wrapper.timestamp_ms
                    == max(message.timestamp_ms for message in messages(filtered.entry))
                    or filtered.entry == entry
                )
    assert after == expected
    assert keyless_count == sum(record.key is None for record in records)


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_messages_that_the_map_did_not_reach_stay_and_deleted_ones_go(
    magic: int, codec: Codec
) -> None:
    whole = old_set(magic, codec, 10, [Old(b"a", b"%d" % i) for i in range(4)])
    rule = KeepRule(log_start_offset=11, clean_to=12, now_ms=NOW_MS)
    table = map_of([])
    kept = []
    for at, header in batches_of_any_format(whole):
        entry = whole[at : at + header.size_bytes]
        filtered = filtered_entry(entry, table, rule, are_tombstones_kept=True)
        kept += [] if filtered.entry is None else list(messages(filtered.entry))
    assert [message.offset for message in kept] == [11, 12, 13]


def records_of(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Every record of a log, of any format."""
    found: list[tuple[int, bytes | None, bytes | None]] = []
    for segment in log.segments:
        data = segment.file.pread(0, segment.size_bytes)
        for at, header in batches_of_any_format(data):
            if header.magic == MAGIC:
                found += [(r.offset, r.key, r.value) for r in scan(data, at, header)]
            else:
                entry = data[at : at + header.size_bytes]
                found += [(m.offset, m.key, m.value) for m in messages(entry)]
    return found


async def old_log(bench: Workbench, magic: int, codec: Codec) -> Log:
    """Three old sets in a closed segment, a new batch in the next."""
    Path(bench.directory).mkdir(parents=True, exist_ok=True)
    sets = (
        (Old(b"a", b"0"), Old(b"b", b"1"), Old(None, b"2")),
        (Old(b"a", b"3"), Old(b"c", None), Old(b"d", b"5")),
        (Old(b"e", b"6"), Old(b"b", b"7"), Old(b"b", b"8")),
    )
    data = b"".join(old_set(magic, codec, 3 * at, records) for at, records in enumerate(sets))
    Path(bench.directory, file_name(0, LOG)).write_bytes(data)
    log = await bench.open(CONFIG)
    append(log, build_batch([(NOW_MS + 50, b"d", b"new")]))
    await log.roll(now_ms=NOW_MS)
    await log.flush()
    log.update_high_watermark(log.end_offset)
    return log


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
async def test_an_old_log_keeps_the_last_value_of_each_key(
    bench: Workbench, magic: int, codec: Codec
) -> None:
    log = await old_log(bench, magic, codec)
    kept: list[tuple[int, bytes | None, bytes | None]] = [
        (3, b"a", b"3"),
        (4, b"c", None),
        (6, b"e", b"6"),
        (8, b"b", b"8"),
        (9, b"d", b"new"),
    ]

    done, _ = await clean_log(RealDisk(), log, task_of(log, now_ms=NOW_MS))

    assert records_of(log) == kept
    assert done.clean_to == 10
    assert done.stats.keyless_record_count == 1
    for is_killed in (False, True):
        close = bench.kill_and_open if is_killed else bench.close_and_open
        log = await close(log)
        assert (records_of(log), log.end_offset) == (kept, 10)


@pytest.mark.parametrize(("retention_ms", "is_kept"), [(60_000, True), (0, False)])
@pytest.mark.parametrize(("magic", "codec"), FORMATS)
async def test_an_old_tombstone_goes_once_its_segment_was_clean_for_long_enough(
    bench: Workbench, magic: int, codec: Codec, retention_ms: int, is_kept: bool
) -> None:
    log = await old_log(bench, magic, codec)
    disk = RealDisk()
    done, _ = await clean_log(disk, log, task_of(log, now_ms=NOW_MS))
    assert (4, b"c", None) in records_of(log)
    append(log, build_batch([(NOW_MS, b"z", b"")]))
    await log.roll(now_ms=NOW_MS)
    await log.flush()
    log.update_high_watermark(log.end_offset)

    await clean_log(
        disk,
        log,
        task_of(
            log,
            first_dirty_offset=done.clean_to,
            now_ms=NOW_MS,
            delete_retention_ms=retention_ms,
        ),
    )

    assert ((4, b"c", None) in records_of(log)) is is_kept
    assert (3, b"a", b"3") in records_of(log)


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
async def test_a_cleaned_old_segment_is_as_old_as_its_source(
    bench: Workbench, magic: int, codec: Codec
) -> None:
    log = await old_log(bench, magic, codec)
    written_ms = 1_500_000_000_123
    for segment in log.segments[:-1]:
        os.utime(segment.file.path, ns=(0, written_ms * 1_000_000))

    _, groups = await clean_log(RealDisk(), log, task_of(log, now_ms=NOW_MS))

    assert groups
    for is_killed in (False, True):
        assert log.segments[0].file.modified_ms == written_ms
        log = await (bench.kill_and_open if is_killed else bench.close_and_open)(log)
    assert log.segments[0].file.modified_ms == written_ms


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
async def test_damage_in_an_old_entry_is_named_and_nothing_is_touched(
    bench: Workbench, magic: int, codec: Codec
) -> None:
    log = await old_log(bench, magic, codec)
    file = log.segments[0].file
    at = file.size_bytes // 2
    file.pwrite(at, [bytes([file.pread(at, 1)[0] ^ 0x42])])
    before = file.pread(0, 1 << 16)
    with pytest.raises(CorruptDataError, match=r"00000000000000000000\.log: "):
        await clean_log(RealDisk(), log, task_of(log, now_ms=NOW_MS))
    assert file.pread(0, 1 << 16) == before
    assert not list(Path(log.directory).glob("*.cleaned"))


async def test_a_map_that_is_full_ends_the_pass_within_a_wrapper(bench: Workbench) -> None:
    log = await old_log(bench, 1, Codec.GZIP)
    disk = RealDisk()
    task = task_of(log, now_ms=NOW_MS, map_bytes=3 * SLOT_BYTES)
    clean_to = Offset(0)
    passes = 0
    while clean_to < 10:
        done, _ = await clean_log(disk, log, task)
        assert clean_to < done.clean_to
        clean_to = Offset(done.clean_to)
        task = task_of(log, first_dirty_offset=clean_to, now_ms=NOW_MS, map_bytes=3 * SLOT_BYTES)
        passes += 1
    assert passes > 1
    assert [offset for offset, _, value in records_of(log) if value is not None] == [3, 6, 8, 9]
