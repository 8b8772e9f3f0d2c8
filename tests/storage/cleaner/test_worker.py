"""The worker process, spoken to as a broker does."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from ottla.storage.cleaner.cleaning_task import (
    GO,
    STOP,
    BytesUsed,
    CleanedGroup,
    CleaningDone,
    CleaningFailed,
    CleaningStats,
    CleaningTask,
    FailureKind,
    Report,
    parse_report,
    task_line,
)
from ottla.storage.cleaner.worker_driver import NICENESS
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import Log
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import build_batch
from tests.storage.cleaner.cleaning_bench import clean_log, task_of
from tests.storage.log.workbench import NOW_MS, Workbench, append

pytestmark = pytest.mark.usefixtures("form")

WAIT_S = 60


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    bench = Workbench(RealDisk(), str(tmp_path / "orders-2"))
    yield bench
    bench.let_go()


@contextmanager
def worker(stderr: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "ottla.storage.cleaner.worker_driver"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def say(process: subprocess.Popen[bytes], line: bytes) -> None:
    pipes(process)[0].write(line)
    pipes(process)[0].flush()


def hear(process: subprocess.Popen[bytes]) -> Report:
    return parse_report(pipes(process)[1].readline())


def timeless(stats: CleaningStats) -> CleaningStats:
    return replace(stats, index_seconds=0.0, filter_seconds=0.0)


async def log_to_clean(bench: Workbench, value_bytes: int = 10) -> tuple[Log, CleaningTask]:
    log = await bench.open(LogConfig(segment_bytes=1 << 22, max_message_bytes=1 << 21))
    for number in range(3):
        append(log, build_batch([(NOW_MS, b"k", b"%d" % number * value_bytes)]))
    await log.roll(now_ms=NOW_MS)
    await log.flush()
    log.update_high_watermark(log.end_offset)
    return log, task_of(log, now_ms=NOW_MS)


def leftovers(log: Log) -> list[str]:
    return [name for name in os.listdir(log.directory) if name.endswith(".cleaned")]


async def test_a_worker_does_what_a_cleaning_in_place_does(bench: Workbench) -> None:
    log, task = await log_to_clean(bench)
    with worker() as process:
        say(process, task_line(task))
        group = hear(process)
        assert isinstance(group, CleanedGroup)
        cleaned = (Path(log.directory) / f"{0:020d}.log.cleaned").read_bytes()
        assert len(cleaned) == group.size_bytes
        say(process, GO)
        done = hear(process)
        assert isinstance(done, CleaningDone)
        in_place, groups = await clean_log(RealDisk(), log, task)
        assert groups == [group]
        assert log.segments[0].file.pread(0, 1 << 20) == cleaned
        assert timeless(done.stats) == timeless(in_place.stats)
        # The same process takes the next task.
        append(log, build_batch([(NOW_MS, b"k", b"last")]))
        await log.roll(now_ms=NOW_MS)
        await log.flush()
        log.update_high_watermark(log.end_offset)
        say(process, task_line(task_of(log, first_dirty_offset=done.clean_to, now_ms=NOW_MS)))
        assert isinstance(hear(process), CleanedGroup)


def test_a_worker_works_in_the_form_that_the_test_names(form: str) -> None:
    script = "from importlib.util import find_spec; print(find_spec('numpy') is None)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert found.stdout.decode().strip() == str(form == "plain")


async def test_a_worker_asks_before_it_continues_and_stops_on_refusal(bench: Workbench) -> None:
    log, task = await log_to_clean(bench, value_bytes=1 << 20)
    with worker() as process:
        say(process, task_line(task))
        question = hear(process)
        assert isinstance(question, BytesUsed)
        assert question.byte_count >= 1 << 20
        say(process, STOP)
        assert hear(process) == CleaningFailed(FailureKind.STOPPED, "stopped")
    assert leftovers(log) == []


async def test_a_worker_reports_what_is_wrong_and_serves_on(bench: Workbench) -> None:
    log, task = await log_to_clean(bench)
    file = log.segments[0].file
    damaged = file.pread(70, 1)[0] ^ 0xFF
    file.pwrite(70, [bytes([damaged])])
    with worker() as process:
        say(process, task_line(task))
        failed = hear(process)
        assert isinstance(failed, CleaningFailed)
        assert failed.kind is FailureKind.CORRUPT
        assert "position 0" in failed.where
        say(process, task_line(replace(task, directory=f"{log.directory}-gone")))
        failed = hear(process)
        assert isinstance(failed, CleaningFailed)
        assert (failed.kind, failed.error_number) == (FailureKind.DISK, 2)
        say(process, b"no task\n")
        failed = hear(process)
        assert isinstance(failed, CleaningFailed)
        assert failed.kind is FailureKind.CORRUPT


async def test_a_worker_ends_with_its_input_and_is_niced(bench: Workbench) -> None:
    log, task = await log_to_clean(bench)
    with worker() as process:
        say(process, task_line(task))
        assert isinstance(hear(process), CleanedGroup)
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(19, own + NICENESS)
        # Niceness counts within a session; so its session is its own, and nice, too.
        assert os.getsid(process.pid) == process.pid
        autogroup = Path(f"/proc/{process.pid}/autogroup")
        assert not autogroup.exists() or autogroup.read_text().split()[-1] == str(NICENESS)
        pipes(process)[0].close()
        assert process.wait(WAIT_S) == 0
    # What it leaves, the broker sweeps away.
    assert leftovers(log)


async def test_a_worker_exits_silently_when_its_parent_is_gone(
    bench: Workbench,
) -> None:
    """A broker that was killed: one of its pipes may be found closed before the other."""
    _log, task = await log_to_clean(bench)
    with worker(subprocess.PIPE) as process:
        pipes(process)[1].close()
        say(process, task_line(task))
        assert process.wait(WAIT_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
