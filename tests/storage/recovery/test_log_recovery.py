"""A log recovers from any death: torn tails, lost files, interrupted swaps, wrong markers."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from ottla.jepsen.world.rng import SeededRng
from ottla.jepsen.world.walk.stepping import CrashingDisk, ProcessEnd, run_through
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset, OffsetAndEpoch, ProducerId
from ottla.model.limits import INT64_MAX
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import Log, open_log
from ottla.storage.segments.abort_digests import AbortDigest, format_digests, parse_digests
from ottla.storage.segments.append_info import AppendOrigin
from ottla.storage.segments.files import (
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
)
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch import patch_in_place
from ottla.wire.batch_builder import ControlType, build_batch, build_end_transaction_marker
from tests.storage.cleaner.cleaning_bench import clean_log, task_of
from tests.storage.log.workbench import NOW_MS, Workbench, append, read_values

SMALL = LogConfig(index_interval_bytes=0, segment_index_bytes=1200)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    bench = Workbench(RealDisk(), str(tmp_path / "orders-2"))
    yield bench
    bench.let_go()


def path_of(bench: Workbench, offset: int, suffix: str) -> Path:
    return Path(bench.directory, file_name(offset, suffix))


def sequenced(producer_id: int, sequence: int, value: bytes = b"v") -> bytes:
    return build_batch(
        [(NOW_MS + sequence, b"k", value)],
        producer_id=ProducerId(producer_id),
        producer_epoch=0,
        base_sequence=sequence,
    )


def replicated(base_offset: int) -> bytearray:
    """A batch as a leader sends it, from anywhere in its log."""
    batch = bytearray(build_batch([(NOW_MS, b"k", b"v")]))
    patch_in_place(batch, 0, base_offset=Offset(base_offset), leader_epoch=Epoch(0))
    return batch


async def three_segments(bench: Workbench, config: LogConfig = SMALL) -> Log:
    """Offsets 0-3, 4-7 and 8-11, by one producer, under epochs 0, 1 and 2."""
    log = await bench.open(config)
    for sequence in range(12):
        if sequence in (4, 8):
            await log.roll(now_ms=NOW_MS)
        append(log, sequenced(9, sequence, b"%d" % sequence), leader_epoch=sequence // 4)
    return log


def expected(count: int) -> list[tuple[int, bytes]]:
    return [(i, b"%d" % i) for i in range(count)]


async def test_a_tail_torn_at_any_byte_is_cut_to_the_last_whole_batch(bench: Workbench) -> None:
    log = await bench.open(SMALL)
    ends = []
    for sequence in range(3):
        append(log, sequenced(9, sequence, b"%d" % sequence))
        ends.append(log.size_bytes)
    log.abandon()
    whole = path_of(bench, 0, LOG).read_bytes()

    for size in range(len(whole) + 1):
        path_of(bench, 0, LOG).write_bytes(whole[:size])
        log = await bench.open(SMALL)
        count = sum(end <= size for end in ends)
        assert (log.end_offset, log.size_bytes) == (count, ([0, *ends])[count])
        assert path_of(bench, 0, LOG).stat().st_size == log.size_bytes
        assert read_values(log) == expected(count)
        assert append(log, sequenced(9, count, b"%d" % count)).base_offset == count
        log.abandon()


async def test_a_flipped_byte_anywhere_in_a_batch_cuts_the_log_before_it(bench: Workbench) -> None:
    log = await bench.open(SMALL)
    for sequence in range(3):
        append(log, sequenced(9, sequence, b"%d" % sequence))
    log.abandon()
    whole = path_of(bench, 0, LOG).read_bytes()
    size = len(whole) // 3

    for at in range(size, 2 * size):
        if at < size + 8 or size + 12 <= at < size + 16:
            continue  # base offset and leader epoch are outside the CRC, as in Kafka
        damaged = bytearray(whole)
        damaged[at] ^= 0x40
        path_of(bench, 0, LOG).write_bytes(damaged)
        log = await bench.open(SMALL)
        assert log.end_offset == 1, f"byte {at}"
        log.abandon()


async def test_nonsense_after_the_last_batch_is_cut(bench: Workbench) -> None:
    log = await three_segments(bench)
    with path_of(bench, 8, LOG).open("ab") as file:
        file.write(b"\xde\xad\xbe\xef" * 100)

    log = await bench.kill_and_open(log, recovery_point=8)

    assert read_values(log) == expected(12)


async def test_segments_after_a_cut_are_removed(bench: Workbench) -> None:
    log = await three_segments(bench)
    log.abandon()
    middle = path_of(bench, 4, LOG)
    middle.write_bytes(middle.read_bytes()[:-1])

    log = await bench.open(SMALL)

    assert read_values(log) == expected(7)
    assert not path_of(bench, 8, LOG).exists()
    assert not path_of(bench, 8, SNAPSHOT).exists()
    assert log.end_offset_for_epoch(Epoch(1)) == OffsetAndEpoch(Offset(7), Epoch(1))


@pytest.mark.parametrize("is_compacted", [False, True])
async def test_a_tail_lost_at_a_batchs_end_takes_what_follows_along(
    bench: Workbench, is_compacted: bool
) -> None:
    """Each file survives a power cut on its own; a gap is a lost tail in a compacted topic too."""
    config = replace(SMALL, is_compacted=is_compacted)
    log = await three_segments(bench, config)
    log.abandon()
    middle = path_of(bench, 4, LOG)
    middle.write_bytes(middle.read_bytes()[: middle.stat().st_size // 4 * 3])

    log = await bench.open(config)

    assert read_values(log) == expected(7)
    assert append(log, sequenced(9, 7, b"7"), leader_epoch=1).base_offset == 7


async def test_a_followers_gap_is_none_between_segments(bench: Workbench) -> None:
    """The base offset of the next segment distinguishes compacted records from a lost tail."""
    config = replace(SMALL, segment_bytes=2 * len(replicated(0)))
    log = await bench.open(config)
    for base_offset in (0, 3, 9, 20, 21):
        log.append_as_follower(memoryview(replicated(base_offset)), now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.state.segments] == [0, 4, 21]
    log.abandon()

    log = await bench.open(config)

    assert [offset for offset, _ in read_values(log)] == [0, 3, 9, 20, 21]


async def test_a_gap_wider_than_a_segment_is_a_cleaners(bench: Workbench) -> None:
    log = await bench.open(SMALL)
    for base_offset in (0, 3 << 31):
        log.append_as_follower(memoryview(replicated(base_offset)), now_ms=NOW_MS)
    log.abandon()

    log = await bench.open(SMALL)

    assert [offset for offset, _ in read_values(log)] == [0, 3 << 31]


async def test_indexes_above_the_recovery_point_are_rebuilt(bench: Workbench) -> None:
    log = await three_segments(bench)
    await log.close()
    before = [path_of(bench, base, OFFSET_INDEX).read_bytes() for base in (0, 4)]
    times = [path_of(bench, base, TIME_INDEX).read_bytes() for base in (0, 4)]
    path_of(bench, 0, OFFSET_INDEX).write_bytes(b"\xff" * 40)
    path_of(bench, 4, OFFSET_INDEX).unlink()
    path_of(bench, 4, TIME_INDEX).write_bytes(b"")

    log = await bench.open(SMALL)

    assert [path_of(bench, base, OFFSET_INDEX).read_bytes() for base in (0, 4)] == before
    assert [path_of(bench, base, TIME_INDEX).read_bytes() for base in (0, 4)] == times
    assert [read_values(log, start)[0][0] for start in range(12)] == list(range(12))


@pytest.mark.parametrize("damage", ["missing", "odd size", "untrimmed"])
async def test_a_damaged_index_below_the_recovery_point_is_rebuilt(
    bench: Workbench, damage: str
) -> None:
    log = await three_segments(bench)
    await log.close()
    index = path_of(bench, 0, OFFSET_INDEX)
    before = index.read_bytes()
    if damage == "missing":
        index.unlink()
    elif damage == "odd size":
        index.write_bytes(before[:-1])
    else:
        index.write_bytes(before + bytes(800))

    log = await bench.open(SMALL, recovery_point=8)

    assert index.read_bytes() == before
    assert read_values(log) == expected(12)


async def test_an_index_entry_without_a_batch_rebuilds_the_index(bench: Workbench) -> None:
    log = await three_segments(bench)
    await log.close()
    index = path_of(bench, 0, OFFSET_INDEX)
    before = index.read_bytes()
    # Entries before the last one are believed until they are followed.
    index.write_bytes(bytes(4) + b"\xff\xff\xff\xf0" + before[8:])
    times = path_of(bench, 0, TIME_INDEX)
    times.write_bytes(times.read_bytes()[:12])

    log = await bench.open(SMALL, recovery_point=8)

    assert index.read_bytes() == before
    assert read_values(log) == expected(12)


@pytest.mark.parametrize("length", [-(1 << 31), -12, 0, 48, 1 << 20])
async def test_a_length_that_lies_in_a_trusted_segment_neither_loops_nor_leads_astray(
    bench: Workbench, length: int
) -> None:
    log = await three_segments(bench, LogConfig())
    await log.close()
    path = path_of(bench, 0, LOG)
    first = bytearray(path.read_bytes())
    first[8:12] = length.to_bytes(4, "big", signed=True)
    path.write_bytes(first)

    log = await bench.open(LogConfig(), is_clean=True, recovery_point=12)

    if log.end_offset:  # else the damage was seen when it was opened
        with pytest.raises(CorruptDataError, match="no batch begins at 0"):
            log.read(Offset(2), bytes_max=1000, end_offset=log.end_offset, at_least_one=True)


async def test_after_a_clean_close_nothing_is_checked(bench: Workbench) -> None:
    log = await three_segments(bench)
    await log.close()
    first = bytearray(path_of(bench, 0, LOG).read_bytes())
    first[-1] ^= 1  # damage that a check would find
    path_of(bench, 0, LOG).write_bytes(first)

    log = await bench.open(SMALL, is_clean=True, recovery_point=12)

    assert (log.end_offset, log.recovery_point) == (12, 12)
    assert append(log, sequenced(9, 12)).base_offset == 12
    with pytest.raises(RefusedError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        append(log, sequenced(9, 14))


async def test_a_clean_marker_that_lies_leads_to_recovery(bench: Workbench) -> None:
    log = await three_segments(bench)
    await log.close()
    last = path_of(bench, 8, LOG)
    last.write_bytes(last.read_bytes()[:-3])

    log = await bench.open(SMALL, is_clean=True, recovery_point=12)

    assert read_values(log) == expected(11)
    assert append(log, sequenced(9, 11)).base_offset == 11


async def test_producers_come_back_from_the_newest_snapshot_and_a_replay(bench: Workbench) -> None:
    log = await three_segments(bench)
    path_of(bench, 4, SNAPSHOT).write_bytes(b"nonsense")

    log = await bench.kill_and_open(log, recovery_point=8)

    assert append(log, sequenced(9, 11)).is_duplicate
    assert append(log, sequenced(9, 12)).base_offset == 12


async def test_producers_come_back_when_every_snapshot_is_gone(bench: Workbench) -> None:
    log = await three_segments(bench)
    for offset in (4, 8):
        path_of(bench, offset, SNAPSHOT).write_bytes(b"")

    log = await bench.kill_and_open(log, recovery_point=8)

    assert append(log, sequenced(9, 10)).base_offset == 10
    assert append(log, sequenced(9, 12)).base_offset == 12


async def test_open_and_aborted_transactions_come_back(bench: Workbench) -> None:
    log = await bench.open(SMALL)
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
    append(
        log,
        build_end_transaction_marker(
            ControlType.ABORT,
            timestamp_ms=NOW_MS,
            producer_id=ProducerId(4),
            producer_epoch=0,
            coordinator_epoch=Epoch(1),
        ),
        origin=AppendOrigin.COORDINATOR,
    )

    log = await bench.kill_and_open(log)
    log.update_high_watermark(log.end_offset)

    assert log.aborted_transactions(Offset(0), Offset(3)) == [(4, 0)]
    assert log.last_stable_offset == 1


@pytest.mark.parametrize("damage", ["odd", "zeroed", "version", "order", "strange"])
async def test_a_damaged_transaction_index_below_the_recovery_point_is_rebuilt(
    bench: Workbench, damage: str
) -> None:
    log = await bench.open(SMALL)
    for sequence in range(6):
        append(log, sequenced(9, sequence))
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
    for producer_id in (4, 5):
        marker = build_end_transaction_marker(
            ControlType.ABORT,
            timestamp_ms=NOW_MS,
            producer_id=ProducerId(producer_id),
            producer_epoch=0,
            coordinator_epoch=Epoch(1),
        )
        append(log, marker, origin=AppendOrigin.COORDINATOR)
    await log.roll(now_ms=NOW_MS)
    append(log, sequenced(9, 6))
    await log.close()
    path = path_of(bench, 0, TRANSACTION_INDEX)
    whole = path.read_bytes()
    assert len(whole) == 68
    path.write_bytes(
        {
            "odd": whole[:-1],
            "zeroed": bytes(68),
            "version": b"\x07" + whole[1:],
            "order": whole[34:] + whole[:34],
            "strange": whole[:34] + b"\xff" * 34,
        }[damage]
    )

    log = await bench.open(SMALL, is_clean=True, recovery_point=11)

    log.update_high_watermark(log.end_offset)
    assert log.aborted_transactions(Offset(0), Offset(11)) == [(4, 6), (5, 7)]
    assert path.read_bytes() == whole


async def test_epochs_come_back_without_their_checkpoint(bench: Workbench) -> None:
    log = await three_segments(bench)
    log.abandon()
    Path(bench.directory, "leader-epoch-checkpoint").unlink()

    log = await bench.open(SMALL)

    ends = [log.end_offset_for_epoch(Epoch(epoch)).offset for epoch in (0, 1, 2, 3)]
    assert ends == [4, 8, 12, -1]


async def test_epochs_that_were_truncated_away_do_not_come_back(bench: Workbench) -> None:
    log = await three_segments(bench)
    stale = Path(bench.directory, "leader-epoch-checkpoint")
    await log.flush()
    before = stale.read_bytes()
    await log.truncate_to(Offset(6))
    append(log, sequenced(9, 6), leader_epoch=5)
    log.abandon()
    stale.write_bytes(before)  # the crash came before the truncated checkpoint was durable

    log = await bench.open(SMALL, recovery_point=6)

    assert log.last_epoch == 5
    assert log.end_offset_for_epoch(Epoch(2)) == OffsetAndEpoch(Offset(6), Epoch(1))


async def test_a_log_that_ends_before_its_checkpointed_start_restarts_there(
    bench: Workbench,
) -> None:
    log = await three_segments(bench)
    log.abandon()

    log = await bench.open(SMALL, log_start_offset=40)

    assert (log.log_start_offset, log.end_offset, log.last_epoch) == (40, 40, -1)
    assert append(log, build_batch([(NOW_MS, None, b"x")])).base_offset == 40


async def test_leftovers_of_deletion_and_cleaning_are_removed(bench: Workbench) -> None:
    log = await three_segments(bench)
    log.abandon()
    leftovers = (
        "00000000000000000000.log.deleted",
        "00000000000000000004.log.cleaned",
        "00000000000000000004.log.swap",  # not below the smallest .cleaned: unfinished
        "00000000000000000099.index",
        "leader-epoch-checkpoint.tmp",
    )
    for name in leftovers:
        Path(bench.directory, name).write_bytes(b"x")

    log = await bench.open(SMALL)

    assert read_values(log) == expected(12)
    assert not [name for name in leftovers if Path(bench.directory, name).exists()]


async def test_a_finished_swap_takes_the_place_of_its_segments(bench: Workbench) -> None:
    log = await three_segments(bench)
    log.abandon()
    merged = path_of(bench, 0, LOG).read_bytes() + path_of(bench, 4, LOG).read_bytes()
    Path(bench.directory, file_name(0, LOG) + ".swap").write_bytes(merged)

    log = await bench.open(SMALL)

    assert read_values(log) == expected(12)
    assert path_of(bench, 0, LOG).read_bytes() == merged
    assert not path_of(bench, 4, LOG).exists()


FAR = (0, 1, (1 << 31) - 1, 1 << 31, (1 << 31) + 1, 1 << 40, (1 << 40) + 1)
"""Offsets of one segment that an old broker wrote; an index holds the first three."""


def write_far_segment(bench: Workbench, tail: bytes = b"") -> None:
    Path(bench.directory).mkdir(parents=True, exist_ok=True)
    path_of(bench, 0, LOG).write_bytes(b"".join(map(replicated, FAR)) + tail)


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("tail", [b"", b"torn"])
async def test_a_segment_whose_offsets_overflow_is_split(
    bench: Workbench, is_clean: bool, tail: bytes
) -> None:
    write_far_segment(bench, tail)

    log = await bench.open(SMALL, is_clean=is_clean, recovery_point=0)

    assert [offset for offset, _ in read_values(log)] == list(FAR)
    assert log.segment_count == 3
    assert append(log, sequenced(9, 0)).base_offset == FAR[-1] + 1
    log = await bench.kill_and_open(log)
    assert [offset for offset, _ in read_values(log, FAR[4])] == [*FAR[4:], FAR[-1] + 1]
    names = sorted(path.name for path in Path(bench.directory).glob("*.log*"))
    assert names == [file_name(base, LOG) for base in (0, 1 << 31, 1 << 40)]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("is_sealed", [False, True])
async def test_an_offset_that_overflows_in_damaged_bytes_is_cut_and_not_split_forever(
    bench: Workbench, is_clean: bool, is_sealed: bool
) -> None:
    damaged = bytearray(replicated(1 << 45))
    damaged[-1] ^= 1
    write_far_segment(bench, bytes(damaged))
    if is_sealed:
        path_of(bench, 1 << 46, LOG).write_bytes(replicated(1 << 46))

    log = await bench.open(SMALL, is_clean=is_clean, recovery_point=1 << 46)

    assert [offset for offset, _ in read_values(log)] == list(FAR)


async def test_a_segment_that_overflows_below_the_recovery_point_is_split_when_it_is_rebuilt(
    bench: Workbench,
) -> None:
    write_far_segment(bench)
    path_of(bench, FAR[-1] + 1, LOG).write_bytes(replicated(FAR[-1] + 1))

    log = await bench.open(SMALL, recovery_point=FAR[-1] + 2)

    assert [offset for offset, _ in read_values(log)] == [*FAR, FAR[-1] + 1]


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_split_that_is_cut_off_anywhere_loses_nothing(is_power_cut: bool) -> None:
    for seed in range(6):
        for operations in range(1, 60):
            disk = CrashingDisk(SeededRng(seed))
            bench = Workbench(disk, "/orders-2")
            run_through(disk.makedirs(bench.directory))
            log_file = disk.open(f"{bench.directory}/{file_name(0, LOG)}", create=True)
            log_file.pwrite(0, [b"".join(map(replicated, FAR))])
            disk.flush_everything()
            disk.operations_left = operations
            with suppress(ProcessEnd):
                run_through(bench.open(SMALL))
            disk.operations_left = None
            disk.crash() if is_power_cut else disk.kill()

            log = run_through(bench.open(SMALL))

            found = [offset for offset, _ in read_values(log)]
            assert found == list(FAR), f"seed {seed}, after {operations} operations"


async def test_a_directory_of_another_topic_is_refused(bench: Workbench) -> None:
    await bench.open(SMALL)

    with pytest.raises(RefusedError) as refused:
        await open_log(
            bench.disk,
            bench.directory,
            config=SMALL,
            topic_id=UUID(int=77),
            is_clean=False,
            recovery_point=Offset(0),
            log_start_offset=Offset(0),
            now_ms=NOW_MS,
        )

    assert refused.value.code == ErrorCode.INCONSISTENT_TOPIC_ID


async def test_progress_is_reported_in_checked_segments_and_bytes(bench: Workbench) -> None:
    log = await three_segments(bench)
    size_bytes = log.size_bytes
    log.abandon()
    reports: list[tuple[int, int]] = []

    log = await open_log(
        bench.disk,
        bench.directory,
        config=SMALL,
        topic_id=None,
        is_clean=False,
        recovery_point=Offset(0),
        log_start_offset=Offset(0),
        now_ms=NOW_MS,
        progress=lambda segments, size: reports.append((segments, size)),
    )
    log.abandon()

    assert [segments for segments, _ in reports] == [0, 1] * 3
    assert sum(size for _, size in reports) == size_bytes


async def test_a_preallocated_segment_is_cut_to_its_batches(bench: Workbench) -> None:
    config = LogConfig(preallocate=True, segment_bytes=1 << 20, flush_messages=INT64_MAX)
    log = await bench.open(config)
    append(log, sequenced(9, 0, b"0"))
    assert path_of(bench, 0, LOG).stat().st_size == 1 << 20

    log = await bench.kill_and_open(log)
    assert read_values(log) == expected(1)
    append(log, sequenced(9, 1, b"1"))
    log = await bench.close_and_open(log)

    assert read_values(log) == expected(2)


async def test_a_flipped_bit_in_an_index_is_repaired_or_reported_and_never_hides_a_record(
    bench: Workbench,
) -> None:
    log = await bench.open(LogConfig(index_interval_bytes=150, segment_index_bytes=1200))
    for sequence in range(24):
        if sequence == 16:
            await log.roll(now_ms=NOW_MS)
        append(log, sequenced(9, sequence, b"%d" % sequence))
    await log.close()
    path = path_of(bench, 0, OFFSET_INDEX)
    whole = path.read_bytes()
    assert len(whole) >= 5 * 8
    reports = 0

    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        log = await bench.open(log.config, is_clean=True, recovery_point=24)
        for start in (1, 6, 11, 15):
            try:
                assert read_values(log, start) == expected(24)[start:], f"bit {bit}"
            except CorruptDataError:
                reports += 1
        log.abandon()

    assert reports


@pytest.mark.parametrize("damage", ["deleted", "emptied", "first offset", "producer", "one less"])
@pytest.mark.parametrize("place", ["sealed", "active"])
@pytest.mark.parametrize("is_clean", [True, False], ids=["closed", "killed"])
async def test_a_transaction_index_that_is_not_what_was_sealed_is_built_again(
    bench: Workbench,
    damage: str,
    place: str,
    is_clean: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its entries are plausible, or there are none: only what was remembered shows it."""
    log = await bench.open(SMALL)
    for producer_id in (4, 5):
        transactional = build_batch(
            [(NOW_MS, None, b"x")],
            producer_id=ProducerId(producer_id),
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        marker = build_end_transaction_marker(
            ControlType.ABORT,
            timestamp_ms=NOW_MS,
            producer_id=ProducerId(producer_id),
            producer_epoch=0,
            coordinator_epoch=Epoch(1),
        )
        append(log, transactional)
        append(log, marker, origin=AppendOrigin.COORDINATOR)
    if place == "sealed":
        await log.roll(now_ms=NOW_MS)
        append(log, build_batch([(NOW_MS, None, b"committed")]))
    if is_clean:
        await log.close()
    else:
        await log.flush()
        log.abandon()
    path = path_of(bench, 0, TRANSACTION_INDEX)
    whole = path.read_bytes()
    assert len(whole) == 68
    if damage == "deleted":
        path.unlink()
    else:
        path.write_bytes(
            {
                "emptied": b"",
                "first offset": whole[:17] + b"\x01" + whole[18:],
                "producer": whole[:9] + b"\x06" + whole[10:],
                "one less": whole[:34],
            }[damage]
        )

    log = await bench.open(SMALL, is_clean=is_clean, recovery_point=log.recovery_point)
    log.update_high_watermark(log.end_offset)

    assert log.aborted_transactions(Offset(0), Offset(4)) == [(4, 0), (5, 2)]
    await log.flush()
    await log.close()
    assert path.read_bytes() == whole
    if place == "sealed" and damage != "first offset":
        assert "it is rebuilt from the markers" in caplog.text


async def test_a_log_without_aborts_has_no_digests(bench: Workbench) -> None:
    log = await three_segments(bench)
    await log.close()
    assert not (Path(bench.directory) / "abort-digests").exists()


@pytest.mark.parametrize("data", [b"", b"0\n", b"0\n1\n0 1 2\n5\n", b"\xff", b"a\nb\nc\n"])
def test_damaged_digests_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        parse_digests(data)


def test_digests_are_read_as_they_were_written() -> None:
    found = {0: AbortDigest(2, 3), 1 << 40: AbortDigest(1, 0)}
    assert parse_digests(format_digests(found)) == found


async def test_the_aborts_that_a_compaction_leaves_are_those_that_a_start_expects(
    bench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    log = await bench.open(replace(SMALL, is_compacted=True))
    for producer_id in range(1, 5):
        transactional = build_batch(
            [(NOW_MS, b"k", b"x")],
            producer_id=ProducerId(producer_id),
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        marker = build_end_transaction_marker(
            ControlType.ABORT,
            timestamp_ms=NOW_MS,
            producer_id=ProducerId(producer_id),
            producer_epoch=0,
            coordinator_epoch=Epoch(1),
        )
        append(log, transactional)
        append(log, marker, origin=AppendOrigin.COORDINATOR)
        await log.roll(now_ms=NOW_MS)
    log.update_high_watermark(log.end_offset)
    before = path_of(bench, 0, TRANSACTION_INDEX).read_bytes()
    await clean_log(bench.disk, log, task_of(log, now_ms=NOW_MS))
    path = path_of(bench, 0, TRANSACTION_INDEX)
    assert log.segment_count == 2
    assert not path.exists() or path.read_bytes() != before

    await bench.kill_and_open(log, recovery_point=log.recovery_checkpoint)

    assert "it is rebuilt from the markers" not in caplog.text
