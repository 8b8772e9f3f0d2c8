"""The task of cleaning a log follows from the settings in force when it begins."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.model.limits import KIB, MIB
from ottla.model.settings.declare import definitions
from ottla.model.settings.storage.cleaner import CleanerConfig
from ottla.storage.cleaner.cleanable import cleanable_of
from ottla.storage.cleaner.log_tasks import task_of
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import build_batch
from tests.storage.log.workbench import NOW_MS, Workbench, append

IN_TASKS: dict[str, list[tuple[dict[str, Any], str, float]]] = {
    "log.cleaner.dedupe.buffer.size": [
        ({}, "map_bytes", 128 * MIB),
        ({"dedupe_buffer_bytes": 48 * MIB}, "map_bytes", 48 * MIB),
    ],
    "log.cleaner.threads": [
        ({"thread_count": 4}, "map_bytes", 32 * MIB),
        ({"thread_count": 4}, "io_buffer_bytes", 64 * KIB),
    ],
    "log.cleaner.io.buffer.size": [
        ({}, "io_buffer_bytes", 256 * KIB),
        ({"io_buffer_bytes": 2 * MIB}, "io_buffer_bytes", MIB),
    ],
    "log.cleaner.io.buffer.load.factor": [
        ({}, "map_load_factor", 0.9),
        ({"buffer_load_factor": 0.5}, "map_load_factor", 0.5),
    ],
}
"""Settings that a task has, each with the expected field for a value."""

IN_THE_DRIVER = {
    "log.cleaner.backoff.ms",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.enable",
}
"""Settings of cleaning schedule and speed, which `test_cleaner_driver` tests; the last one warns
that it is not obeyed."""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    bench = Workbench(RealDisk(), str(tmp_path / "orders-2"))
    yield bench
    bench.let_go()


def test_every_setting_of_the_cleaner_has_its_effect_shown() -> None:
    assert IN_TASKS.keys() | IN_THE_DRIVER == definitions(CleanerConfig).keys()
    assert IN_TASKS.keys().isdisjoint(IN_THE_DRIVER)


@pytest.mark.parametrize(
    ("key", "changes", "field", "expected"),
    [(key, *row) for key, rows in IN_TASKS.items() for row in rows],
)
async def test_a_task_carries_the_settings(
    bench: Workbench, key: str, changes: dict[str, Any], field: str, expected: float
) -> None:
    log = await bench.open(LogConfig(is_compacted=True, delete_retention_ms=77))
    append(log, build_batch([(NOW_MS, b"k", b"v")]))
    log.update_high_watermark(log.end_offset)
    await log.roll(now_ms=NOW_MS)
    cleanable = cleanable_of(log, NOW_MS)
    task = task_of(
        log, cleanable, replace(CleanerConfig(), **changes), (), now_ms=NOW_MS, hash_seed=1
    )
    assert getattr(task, field) == expected, key
    assert task.delete_retention_ms == 77
