"""Memory of an idle log. A broker has thousands of them, so that each dict counts."""

import tracemalloc
from collections.abc import Iterator

import pytest

from ottla.model.ids import ZERO_UUID
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import Log, new_log
from ottla.storage.segments.log_config import LogConfig
from tests.storage.log.workbench import NOW_MS

LOGS = 200
BYTES_MAX = 1_990
"""Bound of the memory of one new log in bytes, 5 % above the measured value. A bound method or an
empty dict takes 64 bytes."""


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def test_a_new_log_takes_little_memory(traced: None) -> None:
    disk, config = RealDisk(), LogConfig()

    def make(index: int) -> Log:
        directory = f"/data/orders-{index}"
        return new_log(disk, directory, config=config, topic_id=ZERO_UUID, now_ms=NOW_MS)

    logs = [make(LOGS)]  # imports and caches are made by the first log
    before, _ = tracemalloc.get_traced_memory()
    logs += map(make, range(LOGS))
    after, _ = tracemalloc.get_traced_memory()

    assert len(logs) == LOGS + 1
    assert (after - before) / LOGS < BYTES_MAX
