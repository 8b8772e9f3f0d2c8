"""A cleaning that is cut off anywhere loses nothing: old segments or new ones, and a full disk."""

import errno
from contextlib import suppress

import pytest

from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.jepsen.world.rng import SeededRng
from ottla.jepsen.world.walk.stepping import CrashingDisk, ProcessEnd, run_through
from ottla.model.ids import Offset
from ottla.storage.cleaner.record_forms import plain_record_work
from ottla.storage.log.log import Log
from ottla.storage.segments.files import CLEANED
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch import batches
from ottla.wire.batch_builder import build_batch
from ottla.wire.records import Record, scan
from tests.search_length import length
from tests.storage.cleaner.cleaning_bench import clean_log, task_of
from tests.storage.log.workbench import NOW_MS, Workbench, append

DIRECTORY = "/orders-2"
CONFIG = LogConfig(segment_bytes=260, index_interval_bytes=0, is_compacted=True, retention_ms=-1)
RETENTION_MS = 1_000


def filled(seed: int) -> tuple[Workbench, Log]:
    """Return a log of several small segments in which every key has several values."""
    disk = CrashingDisk(SeededRng(seed))
    run_through(disk.makedirs(DIRECTORY))
    disk.flush_everything()
    bench = Workbench(disk, DIRECTORY)
    log: Log = run_through(bench.open(CONFIG))
    fill(log, seed)
    return bench, log


def fill(log: Log, seed: int) -> None:
    rng = SeededRng(seed + log.end_offset)
    for _ in range(10):
        records = [
            (NOW_MS, b"%d" % rng.below(5), None if rng.below(4) == 0 else b"%d" % log.end_offset)
            for _ in range(2)
        ]
        append(log, build_batch(records))
    run_through(log.roll(now_ms=NOW_MS))
    run_through(log.flush())
    log.update_high_watermark(log.end_offset)


def clean(bench: Workbench, log: Log, clean_to: int, now_ms: int) -> int:
    task = task_of(
        log, first_dirty_offset=clean_to, now_ms=now_ms, delete_retention_ms=RETENTION_MS
    )
    if task.end_offset <= clean_to:
        return clean_to
    done, _ = run_through(clean_log(bench.disk, log, task, form=plain_record_work))
    return int(done.clean_to)


def records_of(log: Log) -> list[Record]:
    records: list[Record] = []
    for segment in log.segments:
        data = segment.file.pread(0, segment.size_bytes)
        for at, header in batches(data):
            records += scan(data, at, header)
    return records


def state_of(records: list[Record]) -> dict[bytes | None, bytes]:
    state: dict[bytes | None, bytes] = {}
    for record in records:
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = record.value
    return state


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_cleaning_that_dies_anywhere_leaves_every_keys_final_value(is_power_cut: bool) -> None:
    is_over = False
    operations = 0
    while not is_over:
        bench, log = filled(operations)
        disk = bench.disk
        assert isinstance(disk, CrashingDisk)
        # The second of two cleanings dies: it also drops tombstones.
        clean_to = clean(bench, log, 0, NOW_MS)
        fill(log, operations)
        before = records_of(log)
        end_offset = log.end_offset
        disk.operations_left = operations
        with suppress(ProcessEnd):
            clean(bench, log, clean_to, NOW_MS + RETENTION_MS)
            is_over = disk.operations_left > 0
        disk.operations_left = None
        disk.crash() if is_power_cut else disk.kill()

        log = run_through(bench.open(CONFIG, recovery_point=end_offset))

        after = records_of(log)
        where = f"after {operations} operations"
        assert state_of(after) == state_of(before), where
        assert set(after) <= set(before), where
        assert [record.offset for record in after] == sorted(record.offset for record in after)
        assert log.end_offset == end_offset, where
        assert not [name for name in run_through(disk.listdir(DIRECTORY)) if CLEANED in name]
        # The next cleaning finishes what this one began, with the checkpoint from before it.
        log.update_high_watermark(Offset(end_offset))
        clean(bench, log, clean_to, NOW_MS + RETENTION_MS)
        assert state_of(records_of(log)) == state_of(before), where
        keys = [record.key for record in records_of(log)]
        assert len(keys) == len(set(keys)), where
        bench.let_go()
        operations += length(6, 3)


def test_a_disk_that_fills_up_leaves_the_old_segments() -> None:
    bench, log = filled(3)
    disk = bench.disk
    assert isinstance(disk, CrashingDisk)
    before = records_of(log)
    disk.fail(DiskOperation.WRITE, errno.ENOSPC, path_part=CLEANED)
    with pytest.raises(OSError, match=r"\[Errno 28\]"):
        clean(bench, log, 0, NOW_MS)
    assert records_of(log) == before
    assert not [name for name in run_through(disk.listdir(DIRECTORY)) if CLEANED in name]
    assert clean(bench, log, 0, NOW_MS) == log.segments[-1].base_offset
    assert state_of(records_of(log)) == state_of(before)
