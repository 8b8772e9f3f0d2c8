"""Appends of a leader (accepted or refused) and of a follower, and the rolls of segments."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from ottla.jepsen.world.rng import SeededRng
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset, OffsetAndEpoch, ProducerId
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import Log, open_log
from ottla.storage.log.validate import RECORD_ERRORS_MAX, InvalidRecordsError
from ottla.storage.segments.append_info import AppendOrigin
from ottla.storage.segments.files import OFFSET_INDEX, TIME_INDEX, file_name
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch import (
    HEADER,
    TimestampType,
    batches,
    check_crc,
    parse_header,
    patch_in_place,
    patch_log_append_time,
)
from ottla.wire.batch_builder import BatchBuilder, ControlType, build_batch, build_control_batch
from ottla.wire.compression import Codec
from ottla.wire.records import scan
from tests.storage.log.workbench import NOW_MS, CallbackOwner, Workbench, append, read_values

ONE = build_batch([(NOW_MS, b"k", b"v")])


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


def flipped(batch: bytes, at: int) -> bytes:
    changed = bytearray(batch)
    changed[at] ^= 1
    return bytes(changed)


def stored(log: Log) -> bytes:
    read = log.read(Offset(0), bytes_max=1 << 30, end_offset=log.end_offset, at_least_one=True)
    assert read.slice is not None
    return read.slice.read()


async def refusal(bench: Workbench, config: LogConfig, batch: bytes) -> ErrorCode:
    """Append a batch that must be refused; the log must be unchanged."""
    log = await bench.open(config)
    append(log, ONE, leader_epoch=3)
    before = stored(log)
    with pytest.raises(RefusedError) as refused:
        append(log, batch, leader_epoch=4)
    assert (log.end_offset, stored(log), log.last_epoch) == (1, before, 3)
    return refused.value.code


KEYLESS = build_batch([(NOW_MS, None, b"v")])
GAP = BatchBuilder()
GAP.append(NOW_MS, b"k", b"v")
GAP.append(NOW_MS, b"k", b"v", offset_delta=2)

REFUSALS = {
    "no batch": (b"", ErrorCode.INVALID_RECORD),
    "cut header": (ONE[:60], ErrorCode.CORRUPT_MESSAGE),
    "cut records": (ONE[:-1], ErrorCode.CORRUPT_MESSAGE),
    "flipped record": (flipped(ONE, len(ONE) - 1), ErrorCode.CORRUPT_MESSAGE),
    "flipped crc": (flipped(ONE, 17), ErrorCode.CORRUPT_MESSAGE),
    "old magic": (ONE[:16] + b"\1" + ONE[17:], ErrorCode.INVALID_RECORD),
    "two batches": (ONE + ONE, ErrorCode.INVALID_RECORD),
    "trailing byte": (ONE + b"\0", ErrorCode.INVALID_RECORD),
    "length too small": (ONE[:8] + (40).to_bytes(4, "big") + ONE[12:], ErrorCode.CORRUPT_MESSAGE),
    "no records": (
        with_header(ONE, record_count=0, last_offset_delta=-1),
        ErrorCode.INVALID_RECORD,
    ),
    "count is not the offsets'": (with_header(ONE, record_count=2), ErrorCode.INVALID_RECORD),
    "negative delta": (with_header(ONE, last_offset_delta=-5), ErrorCode.INVALID_RECORD),
    "base offset": (with_header(ONE, base_offset=1), ErrorCode.INVALID_RECORD),
    "control batch": (
        build_control_batch([(ControlType.COMMIT, b"\0\0\0\0\0\0")], timestamp_ms=NOW_MS),
        ErrorCode.INVALID_RECORD,
    ),
    "producer without sequence": (with_header(ONE, producer_id=4), ErrorCode.INVALID_RECORD),
    "no such codec": (with_header(ONE, attributes=6), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "append time of its own": (with_header(ONE, attributes=8), ErrorCode.INVALID_TIMESTAMP),
    "too late": (
        build_batch([(NOW_MS + 3_600_001, b"k", b"v")]),
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "too large": (build_batch([(NOW_MS, b"k", bytes(2000))]), ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_a_leader_refuses_with_kafkas_code(bench: Workbench, case: str) -> None:
    batch, code = REFUSALS[case]
    assert await refusal(bench, LogConfig(max_message_bytes=1000), batch) == code


async def test_timestamps_before_the_bound_are_refused(bench: Workbench) -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000)
    old = build_batch([(NOW_MS - 1001, b"k", b"v"), (NOW_MS, b"k", b"v")])
    assert await refusal(bench, config, old) == ErrorCode.INVALID_TIMESTAMP


async def test_a_batch_larger_than_a_segment_is_refused(bench: Workbench) -> None:
    config = LogConfig(segment_bytes=500)
    large = build_batch([(NOW_MS, b"k", bytes(500))])
    assert await refusal(bench, config, large) == ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("codec", list(Codec))
async def test_a_compacted_topic_refuses_records_without_key(
    bench: Workbench, codec: Codec
) -> None:
    keyless = build_batch([(NOW_MS, b"k", b"v"), (NOW_MS, None, b"v")], codec=codec)
    config = LogConfig(is_compacted=True)
    assert await refusal(bench, config, keyless) == ErrorCode.INVALID_RECORD


async def test_records_without_key_are_named_by_their_places(bench: Workbench) -> None:
    log = await bench.open(LogConfig(is_compacted=True))
    mixed = build_batch([(NOW_MS, None if number % 2 else b"k", b"v") for number in range(5)])
    with pytest.raises(InvalidRecordsError) as refused:
        append(log, mixed)
    assert [index for index, _ in refused.value.record_errors] == [1, 3]
    assert "rejected due to 2 record errors in total" in refused.value.message
    many = build_batch([(NOW_MS, None, b"v")] * (RECORD_ERRORS_MAX + 1))
    with pytest.raises(InvalidRecordsError) as refused:
        append(log, many)
    assert len(refused.value.record_errors) == RECORD_ERRORS_MAX
    assert log.end_offset == 0


async def test_full_validation_looks_at_every_record(bench: Workbench) -> None:
    two = build_batch([(NOW_MS, b"k", b"v")] * 2)
    gap = with_header(GAP.build(), last_offset_delta=1, record_count=2)
    late = with_header(
        build_batch([(NOW_MS, b"k", b"v"), (NOW_MS + 4_000_000, b"k", b"v")]), max_timestamp=NOW_MS
    )
    config = LogConfig(is_every_record_checked=True)

    assert await refusal(bench, config, gap) == ErrorCode.INVALID_RECORD
    log = await bench.open(config)
    with pytest.raises(RefusedError, match="INVALID_TIMESTAMP"):
        append(log, late)
    assert append(log, two).last_offset == 2
    lenient = replace(config, is_every_record_checked=False)
    log.config = lenient
    append(log, late)  # by its header it is fine


@pytest.mark.parametrize("sent_codec", list(Codec))
@pytest.mark.parametrize("topic_codec", [None, *Codec])
async def test_batches_are_stored_in_the_topics_codec(
    bench: Workbench, sent_codec: Codec, topic_codec: Codec | None
) -> None:
    log = await bench.open(LogConfig(codec=topic_codec))
    records = [(NOW_MS + i, b"k%d" % i, b"value" * 20) for i in range(5)]
    sent = build_batch(
        records, codec=sent_codec, producer_id=ProducerId(3), producer_epoch=0, base_sequence=0
    )

    append(log, sent)

    data = stored(log)
    header = parse_header(data)
    assert header.codec == (sent_codec if topic_codec is None else topic_codec)
    assert check_crc(memoryview(data), 0, header)
    assert [(r.timestamp_ms, r.key, r.value) for r in scan(data, 0, header)] == records
    if topic_codec is None or topic_codec == sent_codec:
        assert data[21:] == sent[21:]


async def test_log_append_time_overwrites_the_timestamp_of_the_batch(bench: Workbench) -> None:
    log = await bench.open(LogConfig(is_log_append_time=True))
    sent = build_batch([(NOW_MS - 5, b"k", b"v"), (1 << 60, b"k", b"w")])

    info = append(log, sent, leader_epoch=6)

    assert (info.log_append_time_ms, info.max_timestamp) == (NOW_MS, NOW_MS)
    expected = bytearray(sent)
    patch_in_place(expected, 0, base_offset=Offset(0), leader_epoch=Epoch(6))
    patch_log_append_time(expected, 0, now_ms=NOW_MS)
    assert stored(log) == expected
    assert parse_header(expected).timestamp_type is TimestampType.LOG_APPEND_TIME


async def test_what_a_client_writes_as_leader_epoch_means_nothing(bench: Workbench) -> None:
    log = await bench.open(LogConfig())

    append(log, with_header(ONE, partition_leader_epoch=900), leader_epoch=2)

    assert log.last_epoch == 2
    assert parse_header(stored(log)).partition_leader_epoch == 2


@pytest.mark.parametrize("kept", [bytes, bytearray])
async def test_a_batch_is_stored_the_same_from_any_memory(
    bench: Workbench, kept: type[bytes] | type[bytearray]
) -> None:
    log = await bench.open(LogConfig())
    append(log, ONE, leader_epoch=2)
    sent = build_batch([(NOW_MS, b"k", b"v"), (NOW_MS, b"k", b"w")])
    memory = kept(sent)

    log.append_as_leader(memoryview(memory), leader_epoch=Epoch(3), now_ms=NOW_MS)

    expected = bytearray(sent)
    patch_in_place(expected, 0, base_offset=Offset(1), leader_epoch=Epoch(3))
    assert stored(log)[-len(sent) :] == expected
    assert memory == (sent if kept is bytes else expected), "only memory that may be is changed"


async def test_raft_appends_several_batches_as_one(bench: Workbench) -> None:
    log = await bench.open(LogConfig())
    change = build_control_batch([(ControlType.LEADER_CHANGE, b"x")], timestamp_ms=NOW_MS)
    append(log, ONE)

    info = append(log, change + ONE + ONE, leader_epoch=5, origin=AppendOrigin.RAFT)

    assert (info.base_offset, info.last_offset) == (1, 3)
    assert [h.base_offset for _, h in batches(stored(log))] == [0, 1, 2, 3]
    assert log.end_offset_for_epoch(Epoch(0)) == OffsetAndEpoch(Offset(1), Epoch(0))


async def test_a_follower_takes_bytes_offsets_and_epochs_as_they_are(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=400, index_interval_bytes=100)
    leaders = Workbench(RealDisk(), str(tmp_path / "leader-0"))
    followers = Workbench(RealDisk(), str(tmp_path / "follower-0"))
    leader, follower = await leaders.open(LogConfig()), await followers.open(config)
    for epoch in (0, 0, 1, 1, 1, 4, 4, 9):
        append(leader, ONE, leader_epoch=epoch)
    data = stored(leader)

    follower.append_as_follower(memoryview(data[:-1]), now_ms=NOW_MS)  # the last is cut off
    follower.append_as_follower(memoryview(data[-len(ONE) :]), now_ms=NOW_MS)

    assert follower.end_offset == 8
    assert follower.segment_count > 1
    files = sorted(Path(followers.directory).glob("*.log"))
    assert b"".join(file.read_bytes() for file in files) == data
    for epoch in range(10):
        ends = [log.end_offset_for_epoch(Epoch(epoch)) for log in (leader, follower)]
        assert ends[0] == ends[1]
    leaders.let_go()
    followers.let_go()


async def test_a_follower_refuses_damage_and_offsets_that_go_back(bench: Workbench) -> None:
    log = await bench.open(LogConfig())
    log.append_as_follower(memoryview(ONE), now_ms=NOW_MS)

    following = with_header(ONE, base_offset=1)
    for bad in (ONE, flipped(following, 65), following + flipped(following, 65)):
        with pytest.raises(RefusedError, match="CORRUPT_MESSAGE"):
            log.append_as_follower(memoryview(bad), now_ms=NOW_MS)
        assert log.end_offset == 1


async def test_a_follower_takes_the_gaps_of_a_compacted_leader(bench: Workbench) -> None:
    log = await bench.open(LogConfig())

    for base_offset in (3, 9):
        log.append_as_follower(memoryview(with_header(ONE, base_offset=base_offset)), now_ms=NOW_MS)

    assert [offset for offset, _ in read_values(log)] == [3, 9]
    assert [offset for offset, _ in read_values(log, 4)] == [9]


async def test_a_segment_rolls_when_the_next_batch_does_not_fit(bench: Workbench) -> None:
    log = await bench.open(LogConfig(segment_bytes=3 * len(ONE)))

    for _ in range(7):
        append(log, ONE)

    names = [path.name for path in sorted(Path(bench.directory).glob("*.log"))]
    assert names == [f"{base:020d}.log" for base in (0, 3, 6)]
    assert [offset for offset, _ in read_values(log)] == list(range(7))


async def test_a_segment_rolls_by_its_first_batchs_age(bench: Workbench) -> None:
    log = await bench.open(LogConfig(segment_ms=1000))
    append(log, ONE)
    append(log, build_batch([(NOW_MS + 1000, b"k", b"v")]))
    assert log.segment_count == 1

    append(log, build_batch([(NOW_MS + 1001, b"k", b"v")]))

    assert log.segment_count == 2


async def test_a_random_jitter_is_taken_off_each_segments_age(tmp_path: Path) -> None:
    """It is drawn per segment, so that logs that were made together do not all roll together."""
    config = LogConfig(segment_ms=1_000, segment_jitter_ms=400)
    ages: list[list[int]] = []
    for seed in (1, 2):
        log = await open_log(
            RealDisk(),
            str(tmp_path / f"orders-{seed}"),
            config=config,
            topic_id=None,
            is_clean=False,
            recovery_point=Offset(0),
            log_start_offset=Offset(0),
            now_ms=NOW_MS,
            rng=SeededRng(seed),
        )
        began_ms = at_ms = NOW_MS
        ages.append([])
        while log.segment_count <= 6:
            count = log.segment_count
            append(log, build_batch([(at_ms, b"k", b"v")]))
            if log.segment_count > count:
                ages[-1].append(at_ms - began_ms)
                began_ms = at_ms
            at_ms += 10
        log.abandon()
    assert all(600 < age <= 1_010 for age in ages[0] + ages[1])
    assert len(set(ages[0])) > 2
    assert ages[0] != ages[1]


async def test_records_without_timestamps_roll_by_the_segments_own_age(bench: Workbench) -> None:
    log = await bench.open(LogConfig(segment_ms=1000))
    timeless = build_batch([(-1, b"k", b"v")])
    append(log, timeless, now_ms=NOW_MS)
    append(log, timeless, now_ms=NOW_MS + 1000)
    assert log.segment_count == 1

    append(log, timeless, now_ms=NOW_MS + 1001)

    assert log.segment_count == 2


async def test_a_full_index_rolls_the_segment(bench: Workbench) -> None:
    log = await bench.open(LogConfig(index_interval_bytes=0, segment_index_bytes=24))

    for i in range(12):
        append(log, build_batch([(NOW_MS + i, b"k", b"v")]))

    # Room for 3 offset entries and 2 time entries, of which the last is kept for the roll.
    assert log.segment_count == 6
    assert [offset for offset, _ in read_values(log)] == list(range(12))


async def test_a_followers_run_of_batches_overfills_no_index(bench: Workbench) -> None:
    log = await bench.open(LogConfig(index_interval_bytes=0, segment_index_bytes=48))
    run = bytearray()
    for i in range(200):
        batch = bytearray(build_batch([(NOW_MS + i, b"k", b"v")]))
        patch_in_place(batch, 0, base_offset=Offset(i), leader_epoch=Epoch(0))
        run += batch

    log.append_as_follower(memoryview(run), now_ms=NOW_MS)
    append(log, ONE)

    assert log.segment_count == 2
    await log.flush()
    assert Path(bench.directory, file_name(0, OFFSET_INDEX)).stat().st_size == 6 * 8
    assert Path(bench.directory, file_name(0, TIME_INDEX)).stat().st_size == 4 * 12
    for start in (0, 5, 7, 100, 199, 200):
        assert [offset for offset, _ in read_values(log, start)] == list(range(start, 201))
    found = await log.offset_for_timestamp(NOW_MS + 150, log.end_offset)
    assert found == (150, NOW_MS + 150, 0)


async def test_an_index_without_room_for_one_entry_restarts_the_empty_segment(
    bench: Workbench,
) -> None:
    log = await bench.open(LogConfig(segment_index_bytes=4))

    for _ in range(3):
        append(log, ONE)

    assert [offset for offset, _ in read_values(log)] == [0, 1, 2]


async def test_offsets_too_far_for_an_int32_go_to_a_new_segment(bench: Workbench) -> None:
    log = await bench.open(LogConfig())
    log.append_as_follower(memoryview(ONE), now_ms=NOW_MS)

    far = with_header(ONE, base_offset=1 << 31)
    log.append_as_follower(memoryview(far), now_ms=NOW_MS)

    assert log.segment_count == 2
    assert [offset for offset, _ in read_values(log)] == [0, 1 << 31]


async def test_a_roll_is_reported_and_its_flush_seals_the_old_segment(bench: Workbench) -> None:
    log = await bench.open(LogConfig())
    rolls: list[Offset | None] = []
    log.state.owner = CallbackOwner(on_roll=lambda: rolls.append(log.unflushed_roll_offset))
    append(log, ONE)
    log.config = replace(log.config, segment_bytes=len(ONE))

    append(log, ONE)

    assert rolls == [1]
    assert await log.flush(Offset(1)) == 1
    assert log.unflushed_roll_offset is None
    assert (log.recovery_point, log.end_offset) == (1, 2)


async def test_a_leadership_without_records_is_cut_off_at_the_end_of_the_log(
    bench: Workbench,
) -> None:
    """KIP-279: the next leader may not know it, and the follower must not name it forever."""
    log = await bench.open(LogConfig())
    append(log, ONE)
    log.assign_epoch(Epoch(7), log.end_offset)

    assert not await log.truncate_to(log.end_offset)
    assert log.last_epoch == 0
