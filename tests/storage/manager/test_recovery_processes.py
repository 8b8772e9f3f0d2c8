"""Worker processes recover logs as this process does; one that dies costs time alone."""

import os
import pickle
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import trio

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Epoch, NodeId, Offset, ProducerId, TopicPartition
from ottla.model.settings.broker import BrokerConfig
from ottla.node.clock_driver import RealClock, RealRng
from ottla.storage.directories.meta_properties import MetaProperties, format_meta_properties
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.manager import log_recovery_driver
from ottla.storage.manager.log_manager_driver import LogManager, open_log_manager
from ottla.storage.manager.recovery_processes_driver import (
    MAY_START_PROCESSES,
    RecoveryTask,
    RecoveryWorker,
    open_recovery_worker,
)
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import build_batch
from tests.storage.log.workbench import read_values

TOPIC = UUID(int=9)
LOG_COUNT = 3
RECORD_COUNT = 5
CONFIG = LogConfig(segment_bytes=1_000)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Have every log recovered by a process; yields the outcome of each."""
    monkeypatch.setattr(log_recovery_driver, "PROCESSES_BYTES_MIN", 1)
    monkeypatch.setattr(log_recovery_driver, "CHECKED_BYTES_MIN", 1)
    outcomes: list[bool] = []
    recover = RecoveryWorker.recover

    async def recover_and_note(self: RecoveryWorker, *arguments: Any) -> bool:
        outcomes.append(await recover(self, *arguments))
        return outcomes[-1]

    monkeypatch.setattr(RecoveryWorker, "recover", recover_and_note)
    token = MAY_START_PROCESSES.set(True)
    yield outcomes
    MAY_START_PROCESSES.reset(token)


async def killed_broker(path: Path) -> BrokerConfig:
    identity = MetaProperties(cluster_id="c", node_id=NodeId(1), directory_id=UUID(int=500))
    (path / "meta.properties").write_bytes(format_meta_properties(identity))
    config = BrokerConfig(node_id=NodeId(1), log_dirs=(str(path),), recovery_threads_per_dir=2)
    async with open_log_manager(RealDisk(), config, RealClock(), RealRng()) as logs:
        await logs.recover(lambda partition: CONFIG)
        for index in range(LOG_COUNT):
            log = await logs.create(TopicPartition("t", index), TOPIC, CONFIG)
            for number in range(RECORD_COUNT):
                batch = build_batch(
                    [(1_000 + number, None, bytes(400))],
                    producer_id=ProducerId(7),
                    producer_epoch=0,
                    base_sequence=number,
                )
                log.append_as_leader(
                    memoryview(bytearray(batch)), leader_epoch=Epoch(3), now_ms=1_000
                )
    with (path / "t-0" / "00000000000000000004.log").open("ab") as file:
        file.write(b"torn")
    return config


def check(logs: LogManager) -> None:
    assert len(logs) == LOG_COUNT
    for _, log in logs:
        assert [offset for offset, _ in read_values(log)] == list(range(RECORD_COUNT))
        assert log.last_epoch == 3
        assert list(log.active_producers) == [7]
    progress = logs.directories[0].progress
    assert progress.remaining_log_count == progress.remaining_segment_count == 0
    assert progress.bytes_done >= progress.bytes_total - len(b"torn") > 0


async def test_logs_that_processes_recovered_are_whole(tmp_path: Path, eager: list[bool]) -> None:
    config = await killed_broker(tmp_path)
    async with open_log_manager(RealDisk(), config, RealClock(), RealRng()) as logs:
        await logs.recover(lambda partition: CONFIG)
        check(logs)
    assert eager == [True] * LOG_COUNT


async def test_a_log_whose_process_died_is_recovered_here(
    tmp_path: Path, eager: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = await killed_broker(tmp_path)
    open_process = trio.lowlevel.open_process

    async def open_and_kill(*arguments: Any, **more: Any) -> Any:
        process = await open_process(*arguments, **more)
        os.kill(process.pid, signal.SIGKILL)
        return process

    monkeypatch.setattr(trio.lowlevel, "open_process", open_and_kill)
    async with open_log_manager(RealDisk(), config, RealClock(), RealRng()) as logs:
        await logs.recover(lambda partition: CONFIG)
        check(logs)
    assert eager == [False] * LOG_COUNT


async def test_what_a_recovery_fails_by_is_raised_here(tmp_path: Path) -> None:
    (tmp_path / "partition.metadata").write_bytes(b"nonsense")
    task = RecoveryTask(
        path=str(tmp_path),
        config=CONFIG,
        topic_id=TOPIC,
        recovery_point=Offset(0),
        log_start_offset=Offset(0),
        now_ms=1_000,
    )
    async with open_recovery_worker() as worker:
        with pytest.raises(CorruptDataError, match=r"partition\.metadata"):
            await worker.recover(task, lambda segments, size: None)
        (tmp_path / "partition.metadata").unlink()
        assert await worker.recover(task, lambda segments, size: None)


STUCK_WORKER = """
import pickle, sys, threading
from ottla.storage.manager import recovery_processes_driver as driver

async def _outcome(task, frames):
    driver._say(frames, (driver.PROGRESS, (1, 1)))
    threading.Event().wait()

driver._outcome = _outcome
driver.main()
"""


def test_a_worker_ends_with_its_broker_also_after_its_last_report(tmp_path: Path) -> None:
    task = RecoveryTask(
        path=str(tmp_path),
        config=LogConfig(),
        topic_id=uuid4(),
        recovery_point=Offset(0),
        log_start_offset=Offset(0),
        now_ms=0,
    )
    data = pickle.dumps(task)
    with subprocess.Popen(
        [sys.executable, "-c", STUCK_WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(struct.pack(">I", len(data)) + data)
        worker.stdin.flush()
        assert worker.stdout.read(4)
        worker.stdin.close()
        try:
            worker.wait(60)
        finally:
            worker.kill()
