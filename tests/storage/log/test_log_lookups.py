"""Look-ups by time while retention, a truncation or a deletion changes the log under them."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.jepsen.world.rng import SeededRng
from ottla.jepsen.world.walk.stepping import CrashingDisk, run_through
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.storage.log.log import Log
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.segments.timestamp_lookup import TimestampedOffset
from ottla.wire.batch_builder import build_batch
from tests.storage.log.workbench import NOW_MS, Workbench, append

DIRECTORY = "/data/orders-2"
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=0, segment_index_bytes=960)
COUNT = 16


def filled() -> Log:
    disk = CrashingDisk(SeededRng(0))
    run_through(disk.makedirs(DIRECTORY))
    log: Log = run_through(Workbench(disk, DIRECTORY).open(CONFIG))
    for number in range(COUNT):
        append(log, build_batch([(NOW_MS + number, None, b"v" * 90)]))
    log.update_high_watermark(log.end_offset)
    run_through(log.flush())
    return log


async def first(log: Log) -> TimestampedOffset | None:
    return await log.offset_for_timestamp(NOW_MS, log.end_offset)


async def last(log: Log) -> TimestampedOffset | None:
    return await log.max_timestamp_offset(log.end_offset)


def at(log: Log, offset: int) -> TimestampedOffset:
    return TimestampedOffset(Offset(offset), NOW_MS + offset, log.last_epoch)


@pytest.mark.parametrize("step_count", range(4))
def test_a_look_up_finds_what_retention_leaves(step_count: int) -> None:
    log = filled()
    looking = first(log)
    if not advanced(looking, step_count):
        return
    run_through(log.delete_records_before(Offset(9)))

    assert run_through(looking) == at(log, 9)


@pytest.mark.parametrize("look", [first, last])
@pytest.mark.parametrize("step_count", range(4))
def test_a_look_up_finds_nothing_that_a_truncation_took(
    look: Callable[[Log], Coroutine[Any, Any, TimestampedOffset | None]], step_count: int
) -> None:
    log = filled()
    looking = look(log)
    if not advanced(looking, step_count):
        return
    run_through(log.truncate_to(Offset(3)))

    assert run_through(looking) == at(log, 0 if look is first else 2)


def test_a_look_up_in_a_log_that_is_deleted_is_refused() -> None:
    log = filled()
    looking = first(log)
    advanced(looking, 1)
    log.abandon()

    with pytest.raises(RefusedError) as refused:
        run_through(looking)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_look_up_in_a_damaged_batch_is_refused() -> None:
    log = filled()
    segment = log.state.segments[0]
    segment.file.pwrite(61, [b"\xff" * 20])

    with pytest.raises(RefusedError) as refused:
        run_through(first(log))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def advanced(work: Coroutine[Any, Any, object], step_count: int) -> bool:
    """Step a coroutine; return whether it goes on."""
    try:
        for _ in range(step_count):
            work.send(None)
    except StopIteration:
        return False
    return True
