"""A topic is compacted once each of its logs is clean up to its active segment."""

from pathlib import Path

import pytest

from ottla.bench.kafka import compaction_wait
from ottla.bench.kafka.compaction_wait import CHECKPOINT, dirty_logs, wait_until_compacted
from ottla.model.errors import RefusedError


def log_of(root: Path, name: str, *segments: int) -> None:
    (root / name).mkdir(parents=True)
    for base_offset in segments:
        (root / name / f"{base_offset:020}.log").touch()


def test_a_log_is_dirty_until_the_checkpoint_reaches_its_active_segment(tmp_path: Path) -> None:
    log_of(tmp_path, "t-0", 0, 50, 90)
    log_of(tmp_path, "t-1", 0)
    log_of(tmp_path, "t-x-2", 0, 7)
    assert dirty_logs(tmp_path, "t") == ["t-0"]

    (tmp_path / CHECKPOINT).write_text("0\n2\nt-x 0 90\nt 0 50\n")
    assert dirty_logs(tmp_path, "t") == ["t-0"]

    (tmp_path / CHECKPOINT).write_text("0\n1\nt 0 90\n")
    assert dirty_logs(tmp_path, "t") == []
    wait_until_compacted(tmp_path, "t")


def test_a_log_that_stays_dirty_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_wait, "TIMEOUT_S", 0.0)
    log_of(tmp_path, "t-0", 0, 50)

    with pytest.raises(RefusedError, match="not compacted: t-0"):
        wait_until_compacted(tmp_path, "t")
