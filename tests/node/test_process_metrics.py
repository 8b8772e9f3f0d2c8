"""Metrics of this process from the kernel and from Python."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.node import process_metrics_driver
from ottla.node.process_metrics_driver import DESCRIPTORS_PER_SLICE, process_families
from ottla.telemetry.metrics.instruments import Value


def samples() -> dict[str, Value]:
    """Return the numbers without labels, by name."""
    return {
        family.name: sample[1]
        for family in process_families()
        if family is not None
        for sample in family.samples
        if sample is not None and not sample[0]
    }


def number(name: str) -> float:
    value = samples()[name]
    assert isinstance(value, int | float)
    return value


def test_open_descriptors_are_reported() -> None:
    before = number("process_open_fds")
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(50)]

    after = number("process_open_fds")

    for fd in opened:
        os.close(fd)
    assert after - before == 50


def test_an_older_kernel_has_them_counted_with_pauses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "fd").mkdir()
    for at in range(2 * DESCRIPTORS_PER_SLICE + 5):
        (tmp_path / "fd" / str(at)).touch()
    monkeypatch.setattr(process_metrics_driver, "PROC", tmp_path)
    monkeypatch.setattr(os, "stat", lambda path: SimpleNamespace(st_size=0))

    found = list(process_metrics_driver._descriptors())

    assert found[:2] == [None, None]
    assert found[2] is not None
    assert list(found[2].samples) == [((), 2 * DESCRIPTORS_PER_SLICE + 5)]


def test_time_and_memory_are_this_process_s() -> None:
    assert 5e6 < number("process_resident_memory_bytes") < 5e10
    assert number("process_cpu_seconds_total") > 0
    assert 0 < time.time() - number("process_start_time_seconds") < 86_400
