"""Cleanings run in processes that are started when needed, and leave nothing behind."""

import os
import sys
import textwrap
from collections.abc import AsyncIterator

import pytest
import trio

from ottla.model.errors import CorruptDataError
from ottla.storage.cleaner.cleaning_runner import WorkerDiedError
from ottla.storage.cleaner.cleaning_task import (
    BytesUsed,
    CleanableSegment,
    CleanedGroup,
    CleaningDone,
    CleaningFailed,
    CleaningStats,
    CleaningTask,
    FailureKind,
    Report,
    report_line,
)
from ottla.storage.cleaner.worker_pool_driver import WorkerPool

GROUP = CleanedGroup(0, (0, 10), 20, 500, 1, 2, 3)
DONE = CleaningDone(20, CleaningStats(read_bytes=7))
TASK = CleaningTask(
    directory="/orders-0",
    segments=(CleanableSegment(0, 20, 1_000, 1),),
    log_start_offset=0,
    first_dirty_offset=0,
    end_offset=20,
    high_watermark=20,
    now_ms=1,
    delete_retention_ms=0,
    segment_bytes=1_000,
    segment_index_bytes=1_000,
    index_interval_bytes=0,
    max_message_bytes=1_000,
    map_bytes=1_000,
    map_load_factor=0.9,
    io_buffer_bytes=1_000,
    producers={},
)


def pool_of(*reports: Report | bytes, tail: str = "") -> WorkerPool:
    """Return a pool whose worker sends these reports, and reads a reply to each that needs one."""
    lines = [each if isinstance(each, bytes) else report_line(each) for each in reports]
    program = f"""
        import os, sys, time
        for task in sys.stdin.buffer:
            for line in {lines!r}:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
                if line.startswith((b'{{"group"', b'{{"bytes"')):
                    assert sys.stdin.buffer.readline() == b"go\\n"
            {tail or "pass"}
    """
    return WorkerPool([sys.executable, "-c", textwrap.dedent(program)])


async def unthrottled(byte_count: int) -> None:
    """Take as many bytes as come."""


async def all_of(pool: WorkerPool) -> list[CleanedGroup | CleaningDone]:
    found = []
    async with pool.run(TASK, unthrottled) as reports:
        async for report in reports:
            found.append(report)
    return found


def is_there(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


async def test_a_worker_takes_one_task_after_the_other_and_is_ended_when_there_is_none() -> None:
    pool = pool_of(GROUP, DONE)

    assert await all_of(pool) == [GROUP, DONE]
    pids = pool.pids
    assert await all_of(pool) == [GROUP, DONE]
    assert pool.pids == pids
    await pool.end_idle()

    assert pool.pids == []
    assert not is_there(pids[0])
    assert pool.died_count == 0


async def test_a_worker_waits_until_it_may_read_on() -> None:
    pool, taken = pool_of(BytesUsed(500), BytesUsed(70), DONE), list[int]()

    async def throttle(byte_count: int) -> None:
        taken.append(byte_count)

    async with pool.run(TASK, throttle) as reports:
        assert [report async for report in reports] == [DONE]

    assert taken == [500, 70]
    await pool.end_idle()


@pytest.mark.parametrize(
    ("reports", "tail"),
    [
        ((GROUP,), "os._exit(3)"),
        ((b"{}\n",), "time.sleep(60)"),
        ((b"x" * 40 + b"\n",), "time.sleep(60)"),
        ((CleaningFailed(FailureKind.UNEXPECTED, "oops"),), "time.sleep(60)"),
    ],
)
async def test_a_worker_that_dies_or_lies_costs_its_cleaning_and_leaves_no_process(
    reports: tuple[Report | bytes, ...], tail: str
) -> None:
    pool, pids = pool_of(*reports, tail=tail), list[int]()

    with pytest.raises(WorkerDiedError):
        async with pool.run(TASK, unthrottled) as found:
            pids += pool.pids
            async for _ in found:
                pass

    assert pool.died_count == pool.dead_count == 1
    assert pool.pids == []
    assert len(pids) == 1
    assert not is_there(pids[0])

    pool._command = pool_of(DONE)._command
    assert await all_of(pool) == [DONE]
    assert (pool.died_count, pool.dead_count) == (1, 0), "the next worker takes its place"
    await pool.end_idle()


@pytest.mark.parametrize(
    ("failed", "error"),
    [
        (CleaningFailed(FailureKind.CORRUPT, "0.log: batch at 7"), CorruptDataError),
        (CleaningFailed(FailureKind.DISK, "0.log", 28), OSError),
    ],
)
async def test_what_a_cleaning_fails_by_is_raised_as_if_it_were_run_in_place(
    failed: CleaningFailed, error: type[Exception]
) -> None:
    pool = pool_of(failed)

    with pytest.raises(error) as raised:
        await all_of(pool)

    assert getattr(raised.value, "errno", 28) == 28
    assert pool.died_count == 0


async def test_a_cleaning_that_is_cancelled_kills_its_worker() -> None:
    pool = pool_of(GROUP, tail="time.sleep(60)")
    pids: list[int] = []

    async def take(reports: AsyncIterator[CleanedGroup | CleaningDone]) -> None:
        async for _ in reports:
            scope.cancel()

    with trio.CancelScope() as scope:
        async with pool.run(TASK, unthrottled) as reports:
            pids += pool.pids
            await take(reports)

    assert scope.cancelled_caught
    assert pool.pids == []
    assert len(pids) == 1
    assert not is_there(pids[0])
