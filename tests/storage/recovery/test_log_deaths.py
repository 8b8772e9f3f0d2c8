"""Deaths, full disks and their remains that a log survives, each found by random histories.

The disk is the world's.  Where the power is cut, every outcome that POSIX allows is tried by seed.
"""

import errno
from contextlib import suppress
from dataclasses import replace

import pytest

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.jepsen.world.disk_waits import waited_for
from ottla.jepsen.world.rng import SeededRng
from ottla.jepsen.world.walk.stepping import CrashingDisk, run_through
from ottla.model.errors import RefusedError
from ottla.model.ids import Epoch, Offset, ProducerId
from ottla.storage.log.log import Log
from ottla.storage.segments.append_info import AppendOrigin
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import ControlType, build_batch, build_end_transaction_marker
from tests.search_length import length
from tests.storage.log.workbench import NOW_MS, CallbackOwner, Workbench, append, read_values

DIRECTORY = "/data/orders-2"
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, segment_index_bytes=96)
SEEDS = range(length(15, 40))


async def bench_on(seed: int = 0) -> Workbench:
    disk = SimulatedDisk(SeededRng(seed))
    await disk.makedirs(DIRECTORY)
    disk.flush_everything()
    return Workbench(disk, DIRECTORY)


def world(bench: Workbench) -> SimulatedDisk:
    assert isinstance(bench.disk, SimulatedDisk)
    return bench.disk


def fill(log: Log, count: int, word: bytes = b"v", *, leader_epoch: int = 0) -> None:
    for number in range(count):
        batch = build_batch([(NOW_MS + number, None, b"%s%d " % (word, number) * 6)])
        append(log, batch, leader_epoch=leader_epoch)


def offsets(log: Log) -> list[int]:
    return [offset for offset, _ in read_values(log)]


async def test_a_killed_log_with_preallocated_segments_keeps_what_was_rolled() -> None:
    bench = await bench_on()
    log = await bench.open(LogConfig(segment_bytes=400, preallocate=True))
    fill(log, 12)
    assert log.segment_count > 2

    log.abandon()
    world(bench).kill()
    again = await bench.open(log.config)

    assert offsets(again) == list(range(12))


async def roll_in_vain(bench: Workbench) -> Log:
    """Fill a segment until a batch needs a new one, for which the disk has no room."""
    log = await bench.open(CONFIG)
    fill(log, 3)
    world(bench).fail(DiskOperation.OPEN, errno.ENOSPC, path_part=".timeindex")
    with pytest.raises(RefusedError):
        append(log, build_batch([(NOW_MS, None, bytes(200))]))
    append(log, build_batch([(NOW_MS, None, b"")]))
    assert (log.segment_count, log.end_offset) == (1, 4)
    return log


async def test_what_a_failed_roll_leaves_hides_nothing_after_a_clean_stop() -> None:
    bench = await bench_on()
    log = await roll_in_vain(bench)

    again = await bench.close_and_open(log)

    assert (offsets(again), again.end_offset) == ([0, 1, 2, 3], 4)


async def test_what_a_failed_roll_leaves_cuts_nothing_off_after_a_kill() -> None:
    bench = await bench_on()
    log = await roll_in_vain(bench)
    fill(log, 6)
    await log.flush()

    log.abandon()
    world(bench).kill()
    again = await bench.open(CONFIG, recovery_point=3)

    assert offsets(again) == list(range(10))


async def test_what_a_failed_roll_leaves_at_the_end_loses_nothing_that_was_flushed() -> None:
    bench = await bench_on()
    log = await roll_in_vain(bench)
    await log.flush()

    log.abandon()
    world(bench).kill()
    again = await bench.open(CONFIG, recovery_point=4)

    assert (offsets(again), again.end_offset) == ([0, 1, 2, 3], 4)


async def test_the_remains_of_a_failed_roll_hide_no_record_of_a_truncated_log() -> None:
    bench = await bench_on()
    log = await roll_in_vain(bench)
    await log.truncate_fully_and_start_at(Offset(20))
    fill(log, 2)

    log.abandon()
    world(bench).kill()
    again = await bench.open(CONFIG)

    assert offsets(again) == [20, 21]


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_a_start_found_removed_never_comes_back(seed: int) -> None:
    bench = await bench_on(seed)
    log = await bench.open(CONFIG)
    fill(log, 12, b"old")
    await log.flush()
    disk = world(bench)
    disk.fail(DiskOperation.NAME, path_part=DIRECTORY, skip_count=3)
    with pytest.raises(RefusedError):
        await log.truncate_to(Offset(2))  # it dies before what it unlinked is durable
    log.abandon()
    disk.kill()
    disk.heal()
    log = await bench.open(CONFIG)
    kept_count = log.end_offset
    fill(log, 12, b"new", leader_epoch=1)

    log.abandon()
    disk.crash()
    again = await bench.open(CONFIG)

    values = [value for _, value in read_values(again)][kept_count:]
    assert all(value is not None and value.startswith(b"new") for value in values)


async def test_a_removal_cut_off_leaves_no_segment_without_its_transaction_index() -> None:
    bench = await bench_on()
    log = await bench.open(CONFIG)
    aborted = build_batch(
        [(NOW_MS, None, b"v")],
        producer_id=ProducerId(7),
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    marker = build_end_transaction_marker(
        ControlType.ABORT,
        timestamp_ms=NOW_MS,
        producer_id=ProducerId(7),
        producer_epoch=0,
        coordinator_epoch=Epoch(0),
    )
    append(log, aborted)
    append(log, marker, origin=AppendOrigin.COORDINATOR)
    fill(log, 12)
    await log.flush()
    log.update_high_watermark(log.end_offset)
    disk = world(bench)
    disk.fail(DiskOperation.NAME, path_part=".log")
    with pytest.raises(RefusedError):
        await log.delete_records_before(Offset(10))

    log.abandon()
    disk.crash()
    again = await bench.open(CONFIG, recovery_point=14)

    listed = waited_for(lambda: again.aborted_transactions(Offset(0), Offset(14)))
    assert listed == [(7, 0)]


async def test_a_truncation_below_what_a_start_trusts_says_so_before_it_ends() -> None:
    bench = await bench_on()
    log = await bench.open(CONFIG)
    fill(log, 12)
    await log.flush()
    trusted_end = log.recovery_checkpoint
    said: list[int] = []

    async def note() -> None:
        said.append(log.recovery_checkpoint)

    log.state.owner = CallbackOwner(on_offsets_decreased=note)
    await log.truncate_to(trusted_end)
    assert said == []

    await log.truncate_to(Offset(trusted_end - 1))

    assert said == [log.state.segments[-1].base_offset]
    assert said[0] < trusted_end < 12


async def test_producers_are_not_taken_from_before_a_gap() -> None:
    bench = await bench_on()
    log = await bench.open(CONFIG)
    for sequence in range(12):
        append(
            log,
            build_batch(
                [(NOW_MS, None, bytes(60))],
                producer_id=ProducerId(7),
                producer_epoch=0,
                base_sequence=sequence,
            ),
        )
        await log.roll(now_ms=NOW_MS)
    log.abandon()
    disk = world(bench)
    for base in range(9):
        await disk.unlink(f"{DIRECTORY}/{base:020}.log")
    await disk.unlink(f"{DIRECTORY}/{9:020}.snapshot")

    again = await bench.open(CONFIG, log_start_offset=9)

    assert [each.base_offset for each in again.active_producers[7].batches] == [9, 10, 11]


def test_of_two_removals_at_once_neither_leaves_a_gap() -> None:
    disk = CrashingDisk(SeededRng(0))
    run_through(disk.makedirs(DIRECTORY))
    bench = Workbench(disk, DIRECTORY)
    log: Log = run_through(bench.open(CONFIG))
    fill(log, 16)
    log.update_high_watermark(log.end_offset)
    first, second = log.delete_records_before(Offset(4)), log.delete_records_before(Offset(12))
    first.send(None)
    with suppress(StopIteration):
        for _ in range(6):
            second.send(None)

    again: Log = run_through(bench.kill_and_open(log))

    assert offsets(again)[-1] == 15


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_flush_waits_for_the_names_that_another_one_makes_durable(seed: int) -> None:
    disk = CrashingDisk(SeededRng(seed))
    run_through(disk.makedirs(DIRECTORY))
    disk.flush_everything()
    bench = Workbench(disk, DIRECTORY)
    log: Log = run_through(bench.open(CONFIG))
    fill(log, 1)
    run_through(log.flush())
    slow = log.roll(now_ms=NOW_MS)
    slow.send(None)
    while not log.state.segments[0].is_sealed:
        slow.send(None)
    slow.send(None)  # the new segment's snapshot, and on to its name
    fill(log, 1)

    run_through(log.flush())
    disk.crash()
    slow.close()
    again: Log = run_through(bench.kill_and_open(log, recovery_point=1))

    assert offsets(again) == [0, 1]


@pytest.mark.parametrize("seed", SEEDS)
async def test_indexes_that_a_roll_left_unflushed_are_not_trusted(seed: int) -> None:
    bench = await bench_on(seed)
    log = await bench.open(replace(CONFIG, index_interval_bytes=0))
    while log.segment_count == 1:
        await log.flush()
        append(log, build_batch([(NOW_MS + log.end_offset, None, b"v")]))
    assert log.recovery_point == log.state.segments[1].base_offset
    await bench.disk.fsync(log.state.segments[1].file)
    await bench.disk.fsync_directory(DIRECTORY)

    log.abandon()
    world(bench).crash()
    again = await bench.open(log.config, recovery_point=log.recovery_checkpoint)

    first = again.state.segments[0]
    places = [first.offset_index.entry_at(at) for at in range(first.offset_index.count)]
    assert places == [(offset, offset * places[0][1] // places[0][0]) for offset, _ in places]
    times = [first.time_index.entry_at(at) for at in range(first.time_index.count)]
    assert times == [(NOW_MS + offset, offset) for _, offset in times]


async def test_a_start_trusts_what_a_flush_after_a_roll_has_sealed() -> None:
    bench = await bench_on()
    log = await bench.open(CONFIG)
    fill(log, 12)
    assert log.recovery_checkpoint == 0

    await log.flush(log.unflushed_roll_offset)
    sealed_end = log.recovery_checkpoint
    await log.flush()

    assert sealed_end == log.state.segments[-1].base_offset > 0
    assert (log.recovery_checkpoint, log.recovery_point) == (sealed_end, 12)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_segment_on_its_way_out_takes_nothing_flushed_with_it(seed: int) -> None:
    disk = CrashingDisk(SeededRng(seed))
    run_through(disk.makedirs(DIRECTORY))
    disk.flush_everything()
    bench = Workbench(disk, DIRECTORY)
    log: Log = run_through(bench.open(CONFIG))
    fill(log, 12)
    log.update_high_watermark(log.end_offset)
    removal = log.delete_records_before(log.state.segments[2].base_offset)
    for _ in range(seed % 8):
        removal.send(None)

    flushed = run_through(log.flush())
    disk.crash()
    removal.close()
    again: Log = run_through(bench.kill_and_open(log, recovery_point=log.recovery_checkpoint))

    assert (flushed, again.end_offset) == (12, 12)
    assert offsets(again) == list(range(again.log_start_offset, 12))
    assert again.log_start_offset in [segment.base_offset for segment in again.state.segments]


async def test_what_a_failed_roll_leaves_hides_nothing_once_the_segments_before_are_gone() -> None:
    bench = await bench_on()
    log = await roll_in_vain(bench)
    fill(log, 6)
    log.update_high_watermark(log.end_offset)
    await log.delete_records_before(log.state.segments[1].base_offset)

    log.abandon()
    world(bench).kill()
    again = await bench.open(CONFIG)

    assert offsets(again) == list(range(log.log_start_offset, 10))


async def test_a_failed_roll_leaves_no_file() -> None:
    bench = await bench_on()

    await roll_in_vain(bench)

    names = await bench.disk.listdir(DIRECTORY)
    assert [name for name in names if name.endswith((".log", "index"))] == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
    ]


async def test_a_truncation_within_the_first_batch_leaves_the_log_start_where_it_is() -> None:
    bench = await bench_on()
    log = await bench.open(CONFIG)
    append(log, build_batch([(NOW_MS, None, b"%d" % number) for number in range(4)]))
    append(log, build_batch([(NOW_MS, None, b"%d" % number) for number in range(4)]))
    log.update_high_watermark(Offset(8))
    await log.delete_records_before(Offset(6))

    assert await log.truncate_to(Offset(7))

    assert (log.log_start_offset, log.high_watermark, log.end_offset) == (6, 6, 6)
    fill(log, 2)
    log.abandon()
    world(bench).kill()
    again = await bench.open(
        CONFIG, recovery_point=log.recovery_checkpoint, log_start_offset=log.log_start_offset
    )
    assert offsets(again) == [6, 7]


async def test_an_empty_log_takes_a_batch_that_its_start_lies_within() -> None:
    bench = await bench_on()
    log = await bench.open(CONFIG)
    await log.truncate_fully_and_start_at(Offset(6))
    batch = bytearray(build_batch([(NOW_MS, None, b"%d" % number) for number in range(4)]))
    batch[:8] = (4).to_bytes(8, "big")

    log.append_as_follower(memoryview(batch), now_ms=NOW_MS)

    assert (log.log_start_offset, log.end_offset, offsets(log)) == (6, 8, [6, 7])
    assert log.end_offset_for_epoch(Epoch(-1)) == (-1, -1)
    fill(log, 12)
    await log.flush()
    for seed in SEEDS:
        log.abandon()
        world(bench).crash() if seed % 2 else world(bench).kill()
        log = await bench.open(
            CONFIG, recovery_point=log.recovery_checkpoint, log_start_offset=log.log_start_offset
        )
        assert offsets(log) == list(range(6, 20))


async def test_a_log_that_is_not_empty_refuses_a_batch_that_goes_back() -> None:
    bench = await bench_on()
    log = await bench.open(CONFIG)
    fill(log, 2)
    batch = bytearray(build_batch([(NOW_MS, None, b"%d" % number) for number in range(4)]))

    with pytest.raises(RefusedError, match="CORRUPT_MESSAGE"):
        log.append_as_follower(memoryview(batch), now_ms=NOW_MS)

    assert log.end_offset == 2


async def test_a_start_knows_the_same_epochs_after_a_clean_stop_and_after_a_kill() -> None:
    bench = await bench_on()
    log = await bench.open(CONFIG)
    fill(log, 4)
    log.update_high_watermark(log.end_offset)
    await log.delete_records_before(Offset(4))
    stopped = await bench.close_and_open(log)

    stopped.abandon()
    killed = await bench.open(CONFIG, recovery_point=4, log_start_offset=4)

    assert killed.last_epoch == stopped.last_epoch


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_killed_process_left_unflushed_is_flushed_before_it_is_removed(seed: int) -> None:
    disk = CrashingDisk(SeededRng(seed))
    run_through(disk.makedirs(DIRECTORY))
    disk.flush_everything()
    bench = Workbench(disk, DIRECTORY)
    log: Log = run_through(bench.open(CONFIG))
    fill(log, 12)
    disk.kill()
    log = run_through(bench.kill_and_open(log))
    log.update_high_watermark(log.end_offset)
    removal = log.delete_records_before(log.state.segments[2].base_offset)
    removal.send(None)

    flushed = run_through(log.flush())
    disk.crash()
    removal.close()
    again: Log = run_through(bench.kill_and_open(log, recovery_point=log.recovery_checkpoint))

    assert (flushed, again.end_offset) == (12, 12)


@pytest.mark.parametrize("steps", range(9))
def test_retention_leaves_a_log_alone_that_is_truncated(steps: int) -> None:
    disk = CrashingDisk(SeededRng(0))
    run_through(disk.makedirs(DIRECTORY))
    bench = Workbench(disk, DIRECTORY)
    log: Log = run_through(bench.open(replace(CONFIG, retention_bytes=0)))
    for sequence in range(12):
        data = build_batch(
            [(NOW_MS, None, b"v" * 12)],
            producer_id=ProducerId(7),
            producer_epoch=0,
            base_sequence=sequence,
        )
        append(log, data)
    cut_at = log.state.segments[2].base_offset + 1
    log.update_high_watermark(Offset(cut_at))
    removal = log.delete_records_before(log.state.segments[1].base_offset)
    removal.send(None)
    truncation = log.truncate_to(Offset(cut_at))
    for _ in range(steps):
        truncation.send(None)

    run_through(log.delete_old_segments(NOW_MS))
    run_through(removal)
    run_through(truncation)

    assert log.failure is None
    assert (log.end_offset, offsets(log)) == (cut_at, list(range(log.log_start_offset, cut_at)))
    assert log.active_producers[7].batches[-1].last_offset == cut_at - 1


async def test_a_log_knows_the_epochs_of_all_it_holds_though_a_kill_lost_its_log_start() -> None:
    bench = await bench_on()
    log = await bench.open(CONFIG)
    fill(log, 1, leader_epoch=3)
    fill(log, 12, leader_epoch=5)
    log.update_high_watermark(log.end_offset)
    await log.delete_records_before(Offset(log.state.segments[1].base_offset - 1))
    await log.flush()

    killed = await bench.kill_and_open(log, recovery_point=log.end_offset)

    assert [killed.epoch_of(Offset(offset)) for offset in range(3)] == [3, 5, 5]


@pytest.mark.parametrize("steps", range(12))
def test_a_fully_truncated_log_keeps_nothing_of_a_removal_in_progress(steps: int) -> None:
    disk = CrashingDisk(SeededRng(0))
    run_through(disk.makedirs(DIRECTORY))
    disk.flush_everything()
    bench = Workbench(disk, DIRECTORY)
    log: Log = run_through(bench.open(CONFIG))
    fill(log, 12)
    run_through(log.flush())
    log.update_high_watermark(log.end_offset)
    removal = log.delete_records_before(log.state.segments[2].base_offset)
    with suppress(StopIteration):
        for _ in range(steps):
            removal.send(None)

    run_through(log.truncate_fully_and_start_at(Offset(50)))
    fill(log, 3)
    run_through(log.flush())
    disk.crash()
    removal.close()
    again: Log = run_through(bench.kill_and_open(log, recovery_point=log.recovery_checkpoint))

    assert (again.log_start_offset, again.end_offset) == (50, 53)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_new_log_that_loses_power_begins_where_it_began(seed: int) -> None:
    """Of names that were not flushed any may be kept: not a later segment's alone."""
    bench = await bench_on(seed)
    log = await bench.open(CONFIG, is_clean=True)  # as a log is made
    fill(log, 12)
    assert log.segment_count > 2

    log.abandon()
    world(bench).crash()
    again = await bench.open(CONFIG)

    assert again.log_start_offset == 0
    assert offsets(again) == list(range(again.end_offset))


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_head_that_goes_leaves_no_gap_before_what_a_power_cut_keeps(seed: int) -> None:
    bench = await bench_on(seed)
    log = await bench.open(CONFIG)
    fill(log, 3)
    await log.flush()
    fill(log, 12)  # rolls, of whose names none is flushed
    second = sorted(int(path[:20]) for path in await bench.disk.listdir(DIRECTORY) if is_log(path))[
        1
    ]
    log.update_high_watermark(log.end_offset)
    world(bench).fail(DiskOperation.NAME, path_part=f"{0:020}.index")
    with pytest.raises(RefusedError):
        await log.delete_records_before(Offset(second))  # it dies with one name taken away

    log.abandon()
    world(bench).crash()
    again = await bench.open(CONFIG)

    assert again.log_start_offset <= second


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_log_that_begins_again_and_loses_power_begins_there(seed: int) -> None:
    """It has no epochs to write, whose checkpoint would make the name durable, too."""
    bench = await bench_on(seed)
    log = await bench.open(CONFIG)
    await log.truncate_fully_and_start_at(Offset(50))
    await log.truncate_fully_and_start_at(Offset(100))
    fill(log, 12)
    assert log.segment_count > 2

    log.abandon()
    world(bench).crash()
    again = await bench.open(CONFIG, log_start_offset=100)

    assert again.log_start_offset == 100
    assert offsets(again) == list(range(100, again.end_offset))


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_a_failed_flush_left_in_memory_alone_no_start_takes_for_flushed(
    seed: int,
) -> None:
    """The kernel shows it to the next process, whose own flush succeeds, and then loses it."""
    bench = await bench_on(seed)
    log = await bench.open(CONFIG)
    fill(log, 2)
    await log.flush()
    fill(log, 3)
    world(bench).fail(DiskOperation.FSYNC, path_part=".log")
    with pytest.raises(RefusedError):
        await log.flush()

    log.abandon()
    world(bench).kill()
    again = await bench.open(CONFIG, recovery_point=log.recovery_checkpoint)
    fill(again, 1)
    await again.flush()
    flushed_end = again.end_offset
    again.abandon()
    world(bench).crash()
    last = await bench.open(CONFIG, recovery_point=again.recovery_checkpoint)

    assert last.end_offset >= flushed_end
    assert offsets(last) == list(range(last.end_offset))


@pytest.mark.parametrize("offset", [0, 1, 2])
async def test_a_cut_whose_flush_failed_is_made_durable_by_the_start_that_finds_it(
    offset: int,
) -> None:
    """A file's size outlives a failed fsync in memory, and a second fsync may not write it."""
    bench = await bench_on()
    log = await bench.open(CONFIG)
    fill(log, 3)
    await log.flush()
    world(bench).fail(DiskOperation.FSYNC, path_part=".log")
    with pytest.raises(RefusedError):
        await log.truncate_to(Offset(offset))

    log.abandon()
    world(bench).kill()
    again = await bench.open(CONFIG)
    assert again.end_offset == offset
    again.abandon()
    world(bench).crash()
    last = await bench.open(CONFIG)

    assert last.end_offset == offset


def is_log(name: str) -> bool:
    return name.endswith(".log")
