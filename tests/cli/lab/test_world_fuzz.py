"""`ottla world fuzz`: its output and exit codes."""

import json
from pathlib import Path

import pytest

from ottla.cli.lab.world_fuzz import FOUND
from ottla.cli.main import REFUSED, run
from ottla.jepsen.fuzz import table
from ottla.jepsen.fuzz.table import TARGETS, target_of
from ottla.jepsen.fuzz.target import FuzzTarget

SHORT = ["world", "fuzz", "--driver", "plain", "--for", "500ms"]
"""Long enough for the first input of a process that waits for a core meanwhile."""


def test_the_targets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["world", "fuzz", "--list", "--format", "json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert [row["target"] for row in output] == list(TARGETS)
    assert run(["world", "fuzz", "--list", "--target", "files"]) == 0
    assert target_of("files").sentence in capsys.readouterr().out


def test_a_clean_hunt_tells_how_many_inputs_it_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SHORT, "--target", "codecs", "--keep", str(tmp_path), "--format", "json"]
    assert run(words) == 0
    (row,) = json.loads(capsys.readouterr().out)["targets"]
    assert row["inputs"] > 0
    assert row["findings"] == 0
    assert list(tmp_path.iterdir()) == []


def test_what_is_found_is_kept_and_read_first_the_next_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(data: bytes) -> None:
        assert data != b"bad"

    seeds: list[bytes] = [b"bad"]
    planted = FuzzTarget(name="files", sentence="planted", check=check, seeds=lambda random: seeds)
    monkeypatch.setattr(table, "target_of", lambda name: planted)
    words = [*SHORT, "--target", "files", "--keep", str(tmp_path)]
    assert run(words) == FOUND
    assert "ottla world fuzz --target files" in capsys.readouterr().err
    seeds[:] = [b"good"]
    assert run(words) == FOUND
    assert b"bad".hex() in (tmp_path / "files.txt").read_text()


def test_a_target_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*SHORT, "--target", "absent"]) == REFUSED
    assert "'absent'" in capsys.readouterr().err
