"""A cleaned segment replaces its sources: after any death there are the sources or the cleaned
one."""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import pytest

from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.jepsen.world.rng import SeededRng
from ottla.jepsen.world.walk.stepping import CrashingDisk, ProcessEnd, SteppedTask, run_through
from ottla.model.errors import CorruptDataError, RefusedError
from ottla.model.ids import Offset
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.log.log import Log
from ottla.storage.recovery.segment_swap import remove_cleaned
from ottla.storage.segments.files import CLEANED, DELETED, LOG, OFFSET_INDEX, SWAP, file_name
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.segments.segment import Segment
from ottla.wire.batch import batches
from ottla.wire.batch_builder import build_batch
from tests.storage.log.workbench import NOW_MS, CallbackOwner, Workbench, append, read_values

CONFIG = LogConfig(
    index_interval_bytes=0, segment_index_bytes=1200, is_compacted=True, retention_ms=-1
)
DIRECTORY = "/orders-2"
SEGMENTS = (0, 3, 6, 9)
END = 12


class CleanedSegment(NamedTuple):
    """A cleaning's report of one new segment."""

    base_offset: int
    sources: tuple[int, ...]
    size_bytes: int
    max_timestamp_ms: int
    max_timestamp_offset: int
    first_timestamp_ms: int


def open_bench(seed: int = 1) -> Workbench:
    disk = CrashingDisk(SeededRng(seed))
    run_through(disk.makedirs(DIRECTORY))
    disk.flush_everything()
    return Workbench(disk, DIRECTORY)


def four_segments(bench: Workbench) -> Log:
    """Offsets 0-2, 3-5, 6-8 flushed and closed, 9-11 active; value n at offset n."""
    log: Log = run_through(bench.open(CONFIG))
    for offset in range(END):
        if offset and offset in SEGMENTS:
            run_through(log.roll(now_ms=NOW_MS))
        append(log, build_batch([(NOW_MS + offset, b"k%d" % (offset % 4), b"%d" % offset)]))
    log.update_high_watermark(Offset(END))
    run_through(log.flush())
    return log


def clean(
    disk: Disk, log: Log, sources: tuple[int, ...], is_kept: Callable[[int], bool]
) -> CleanedSegment:
    """Write the `.cleaned` files that hold the batches of the sources at these offsets."""
    base_offset = Offset(sources[0])
    new = Segment(disk, log.directory, base_offset, CONFIG, now_ms=NOW_MS, suffix=CLEANED)
    new.begin(CONFIG)
    for segment in [each for each in log.segments if each.base_offset in sources]:
        data = segment.file.pread(0, segment.size_bytes)
        for at, header in batches(data):
            if is_kept(header.base_offset):
                new.file.pwrite(new.size_bytes, [data[at : at + header.size_bytes]])
                new.note_batch(
                    header.base_offset,
                    header.last_offset,
                    header.max_timestamp,
                    header.size_bytes,
                    0,
                )
    new.add_last_time_entry()
    run_through(disk.fsync(new.file))
    run_through(new.trim())
    new.close()
    return CleanedSegment(
        base_offset,
        sources,
        new.size_bytes,
        new.max_timestamp_ms,
        new.max_timestamp_offset,
        new.first_timestamp_ms,
    )


def is_new(offset: int) -> bool:
    """Return whether a cleaning of the three closed segments keeps an offset; it keeps the last."""
    return offset in (1, 4, 8) or offset > 8


OLD = [(offset, b"%d" % offset) for offset in range(END)]
NEW = [(offset, value) for offset, value in OLD if is_new(offset)]


def swap(log: Log, cleaned: CleanedSegment) -> None:
    log.is_being_cleaned = True
    run_through(log.replace_segments(cleaned))
    log.is_being_cleaned = False


def names(bench: Workbench, suffix: str) -> list[str]:
    return [name for name in run_through(bench.disk.listdir(DIRECTORY)) if name.endswith(suffix)]


def test_a_reader_finds_what_a_cleaning_kept_at_its_offsets() -> None:
    bench = open_bench()
    log = four_segments(bench)

    swap(log, clean(bench.disk, log, (0, 3, 6), is_new))

    assert read_values(log) == NEW
    assert read_values(log, 5) == NEW[2:]
    assert [each.base_offset for each in log.segments] == [0, 9]
    found = run_through(log.offset_for_timestamp(NOW_MS + 2, Offset(END)))
    assert found is not None
    assert found.offset == 4
    assert names(bench, LOG) == [file_name(0, LOG), file_name(9, LOG)]
    assert names(bench, SWAP) == names(bench, CLEANED) == []


def test_segments_in_the_middle_are_replaced_alone() -> None:
    bench = open_bench()
    log = four_segments(bench)

    swap(log, clean(bench.disk, log, (3, 6), is_new))

    assert read_values(log) == OLD[:3] + NEW[1:]
    log = run_through(bench.kill_and_open(log, recovery_point=END))
    assert read_values(log) == OLD[:3] + NEW[1:]


@pytest.mark.parametrize("recovery_point", [0, 5, END])
def test_a_cleaned_log_comes_back_whole_whatever_is_known_of_its_flushes(
    recovery_point: int,
) -> None:
    bench = open_bench()
    log = four_segments(bench)
    swap(log, clean(bench.disk, log, (0, 3, 6), is_new))

    log = run_through(bench.kill_and_open(log, recovery_point=recovery_point))

    assert read_values(log) == NEW
    assert append(log, build_batch([(NOW_MS, b"k", b"v")])).base_offset == END


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_swap_that_is_cut_off_anywhere_leaves_the_old_segments_or_the_new_one(
    is_power_cut: bool,
) -> None:
    outcomes = set[str]()
    for seed in range(3):
        for operations in range(45):
            bench = open_bench(seed)
            disk = bench.disk
            assert isinstance(disk, CrashingDisk)
            log = four_segments(bench)
            cleaned = clean(disk, log, (0, 3, 6), is_new)
            disk.operations_left = operations
            with suppress(ProcessEnd):
                swap(log, cleaned)
            is_over = disk.operations_left > 0
            disk.operations_left = None
            disk.crash() if is_power_cut else disk.kill()
            is_decided = bool(names(bench, LOG + SWAP))
            for second in range(5):  # the start dies, too
                disk.operations_left = second * 7
                with suppress(ProcessEnd):
                    run_through(bench.open(CONFIG, recovery_point=END))
                disk.operations_left = None
                disk.crash() if is_power_cut else disk.kill()

            log = run_through(bench.open(CONFIG, recovery_point=END))

            where = f"seed {seed}, after {operations} operations"
            assert read_values(log) in (OLD, NEW), where
            outcomes.add("new" if read_values(log) == NEW else "old")
            assert names(bench, SWAP) == names(bench, CLEANED) == names(bench, DELETED) == []
            assert not (is_over or is_decided) or read_values(log) == NEW, where
            bench.let_go()
    assert outcomes == {"old", "new"}


def test_a_wholly_cleaned_group_survives_a_start_that_dies_before_its_index_has_its_name() -> None:
    bench = open_bench()
    log = four_segments(bench)
    clean(bench.disk, log, (0, 3, 6), is_new)
    path = f"{DIRECTORY}/{file_name(0, OFFSET_INDEX)}"
    run_through(bench.disk.rename(path + CLEANED, path + SWAP))
    run_through(bench.disk.unlink(f"{DIRECTORY}/{file_name(0, LOG)}{CLEANED}"))

    log = run_through(bench.kill_and_open(log, recovery_point=END))

    assert read_values(log) == OLD
    assert read_values(log, 2) == OLD[2:]


@pytest.mark.parametrize("operation", [DiskOperation.NAME, DiskOperation.FSYNC])
def test_a_disk_that_fails_within_a_swap_takes_the_log_offline_and_costs_nothing(
    operation: DiskOperation,
) -> None:
    for skip_count in range(40):
        bench = open_bench()
        disk = bench.disk
        assert isinstance(disk, CrashingDisk)
        log = four_segments(bench)
        cleaned = clean(disk, log, (0, 3, 6), is_new)
        fault = disk.fail(operation, skip_count=skip_count)
        try:
            swap(log, cleaned)
        except RefusedError:
            assert log.failure is not None
        assert log.failure is not None or fault.times_left or operation is DiskOperation.FSYNC
        disk.heal()

        log = run_through(bench.kill_and_open(log, recovery_point=END))

        assert read_values(log) in (OLD, NEW)


def test_a_full_disk_leaves_the_old_segments_serving() -> None:
    bench = open_bench()
    disk = bench.disk
    assert isinstance(disk, CrashingDisk)
    log = four_segments(bench)
    cleaned = clean(disk, log, (0, 3, 6), is_new)
    disk.fail(DiskOperation.NAME, 28)

    with pytest.raises(RefusedError):
        swap(log, cleaned)

    assert log.failure is None
    assert read_values(log) == OLD
    run_through(remove_cleaned(disk, DIRECTORY))
    assert names(bench, CLEANED) == names(bench, SWAP) == []
    log.is_being_cleaned = False
    swap(log, clean(disk, log, (0, 3, 6), is_new))
    assert read_values(log) == NEW


def test_what_a_fetch_holds_of_a_replaced_segment_stays_readable() -> None:
    bench = open_bench()
    log = four_segments(bench)
    read = log.read(Offset(3), bytes_max=1 << 20, end_offset=log.end_offset, at_least_one=True)
    assert read.slice is not None
    before = read.slice.read()

    swap(log, clean(bench.disk, log, (0, 3, 6), is_new))

    assert read.slice.read() == before


def test_a_look_up_by_time_that_a_swap_overtakes_begins_again() -> None:
    bench = open_bench()
    log = four_segments(bench)
    found: list[object] = []
    looking = SteppedTask("look", log.offset_for_timestamp(NOW_MS + 5, Offset(END)), found.append)
    looking.step()

    swap(log, clean(bench.disk, log, (0, 3, 6), is_new))

    while not looking.step():
        pass
    assert getattr(found[0], "offset", None) == 8


def test_a_segment_whose_end_is_missing_is_not_taken() -> None:
    bench = open_bench()
    log = four_segments(bench)

    with pytest.raises(CorruptDataError, match="ends at 5, not at 9"):
        swap(log, clean(bench.disk, log, (0, 3, 6), lambda offset: offset < 5))

    assert read_values(log) == OLD


def test_a_segment_whose_size_is_not_what_was_reported_is_not_taken() -> None:
    bench = open_bench()
    log = four_segments(bench)
    cleaned = clean(bench.disk, log, (0, 3, 6), is_new)

    with pytest.raises(CorruptDataError, match="its size"):
        swap(log, cleaned._replace(size_bytes=cleaned.size_bytes + 1))

    assert read_values(log) == OLD


@pytest.mark.parametrize("sources", [(3, 9), (0, 3, 6, 9), (1, 3), (12,)])
def test_segments_that_are_not_the_logs_closed_ones_in_a_row_are_not_replaced(
    sources: tuple[int, ...],
) -> None:
    bench = open_bench()
    log = four_segments(bench)

    with pytest.raises(RefusedError):
        swap(log, CleanedSegment(sources[0], sources, 0, -1, 0, -1))

    assert read_values(log) == OLD


def test_nothing_is_removed_while_a_log_is_cleaned() -> None:
    bench = open_bench()
    log = four_segments(bench)
    log.is_being_cleaned = True

    run_through(log.delete_records_before(Offset(7)))
    assert run_through(log.delete_old_segments(NOW_MS)) == 0
    assert log.segment_count == 4
    assert read_values(log) == OLD[7:]

    log.is_being_cleaned = False
    run_through(log.delete_old_segments(NOW_MS))
    assert log.segment_count == 2


def test_a_truncation_waits_for_the_end_of_a_cleaning() -> None:
    bench = open_bench()
    log = four_segments(bench)
    calls: list[object] = []

    async def stop(offset: Offset) -> None:
        calls.append((offset, log.end_offset))

    log.state.owner = CallbackOwner(
        before_truncation=stop, after_truncation=lambda: calls.append("resumed")
    )

    run_through(log.truncate_to(Offset(4)))
    assert calls == [(3, END), "resumed"]
    assert read_values(log) == OLD[:4]
    run_through(log.truncate_fully_and_start_at(Offset(20)))
    assert calls == [(3, END), "resumed", (0, 4), "resumed"]


def test_a_truncation_into_a_cleaned_segment_leaves_its_beginning() -> None:
    bench = open_bench()
    log = four_segments(bench)
    swap(log, clean(bench.disk, log, (0, 3, 6), is_new))

    run_through(log.truncate_to(Offset(5)))

    assert log.end_offset == 5
    assert append(log, build_batch([(NOW_MS, b"k", b"new")])).base_offset == 5
    run_through(log.flush())
    log = run_through(bench.kill_and_open(log, recovery_point=log.recovery_checkpoint))
    assert read_values(log) == [*NEW[:2], (5, b"new")]


def test_a_truncation_below_the_cleaned_log_start_begins_again() -> None:
    bench = open_bench()
    log = four_segments(bench)
    swap(log, clean(bench.disk, log, (0, 3, 6), is_new))

    run_through(log.truncate_to(Offset(0)))

    assert (log.log_start_offset, log.end_offset) == (0, 0)
    assert append(log, build_batch([(NOW_MS, b"k", b"v")])).base_offset == 0
