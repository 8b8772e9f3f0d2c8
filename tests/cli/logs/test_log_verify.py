"""`ottla log verify` finds damage, names its place, and reports a sound directory as sound."""

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import run
from ottla.storage.inspection.verify import PASSING_SUFFIXES

MakeDirectory = Callable[..., Path]
FIRST = "orders-0/00000000000000000000"


def verified(
    capsys: pytest.CaptureFixture[str], directory: Path, *options: str, code: int
) -> dict[str, Any]:
    assert run(["log", "verify", str(directory), "--format", "json", *options]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("is_closed", [True, False], ids=["stopped", "killed"])
def test_a_sound_directory_has_no_flaw(
    is_closed: bool, log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    found = verified(capsys, log_directory(is_closed=is_closed), "--records", code=0)
    assert found["flaws"] == []
    assert found["partitions"] == 1
    assert found["files"] > 10


def test_a_partition_is_checked_alone(
    log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = log_directory()
    (directory / "meta.properties").write_text("damaged")
    assert verified(capsys, directory / "orders-0", code=0)["flaws"] == []
    assert verified(capsys, directory, code=2)["damaged_files"] == ["meta.properties"]


def test_damage_is_named_with_its_file_and_position(
    log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = log_directory()
    log = directory / f"{FIRST}.log"
    data = bytearray(log.read_bytes())
    second = int.from_bytes(data[8:12], "big") + 12
    data[second + 70] ^= 1
    log.write_bytes(data)
    assert run(["log", "verify", str(directory)]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:3] == [f"{FIRST}.log", str(second), "damage"]
    assert "its CRC is wrong" in lines[1]
    assert lines[-1].endswith("1 damaged file")


@pytest.mark.parametrize(
    ("suffix", "at", "sentence"),
    [
        (".index", 7, "lies within the batch"),
        (".index", 3, "ends with offset"),
        (".timeindex", 7, "the largest timestamp up to offset"),
        (".timeindex", 11, "the largest timestamp up to offset"),
    ],
)
def test_an_index_entry_that_does_not_fit_its_log_is_damage(
    suffix: str,
    at: int,
    sentence: str,
    log_directory: MakeDirectory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    directory = log_directory()
    index = directory / f"{FIRST}{suffix}"
    data = bytearray(index.read_bytes())
    data[at] ^= 2
    index.write_bytes(data)
    (flaw, *_) = verified(capsys, directory, code=2)["flaws"]
    assert flaw["file"] == f"{FIRST}{suffix}"
    assert flaw["position"] == 0
    assert sentence in flaw["problem"]


def test_an_aborted_transaction_without_its_marker_is_damage(
    log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = log_directory()
    (index,) = (file for file in directory.rglob("*.txnindex") if file.stat().st_size)
    data = bytearray(index.read_bytes())
    data[9] ^= 1
    index.write_bytes(data)
    (flaw,) = verified(capsys, directory, code=2)["flaws"]
    assert "has no marker of producer 4" in flaw["problem"]


def test_what_was_flushed_and_is_not_there_is_damage(
    log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = log_directory()
    newest = max((directory / "orders-0").glob("*.log"))
    os.truncate(newest, 0)
    problems = [flaw["problem"] for flaw in verified(capsys, directory, code=2)["flaws"]]
    assert any("was flushed up to" in problem for problem in problems)


def test_a_segment_that_is_missing_is_damage_where_it_was_not_flushed(
    log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = log_directory(is_closed=False)
    (directory / "recovery-point-offset-checkpoint").unlink()
    second = sorted((directory / "orders-0").glob("*.log"))[1]
    second.unlink()
    problems = {flaw["problem"] for flaw in verified(capsys, directory, code=0)["flaws"]}
    assert {problem.partition(",")[0] for problem in problems} == {"an index without a log"}
    (directory / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 0\n")
    problems = {flaw["problem"] for flaw in verified(capsys, directory, code=2)["flaws"]}
    assert any("a start cuts the log there" in problem for problem in problems)


def test_epochs_that_contradict_the_batches_are_damage(
    log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = log_directory()
    epochs = directory / "orders-0" / "leader-epoch-checkpoint"
    epochs.write_text(epochs.read_text().replace("\n2 24\n", "\n2 22\n"))
    (flaw,) = verified(capsys, directory, code=2)["flaws"]
    assert flaw["file"] == "orders-0/leader-epoch-checkpoint"
    assert flaw["problem"] == "offset 22 is of epoch 1, not of 2"


def test_left_overs_are_notes(
    log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = log_directory()
    for suffix in PASSING_SUFFIXES:
        (directory / f"{FIRST}.log{suffix}").write_bytes(b"x")
    (directory / f"gone-3.{'0' * 32}-delete").mkdir()
    flaws = verified(capsys, directory, code=0)["flaws"]
    assert not any(flaw["is_damage"] for flaw in flaws)
    assert [flaw["problem"].partition(",")[0] for flaw in flaws] == [
        "a deletion that the next start ends",
        "a left-over of a deletion or a cleaning",
    ]
    assert flaws[1]["problem"].endswith(f"(and {len(PASSING_SUFFIXES) - 1} others)")


def test_a_directory_in_use_is_read_and_said_to_be(
    log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = log_directory(is_closed=False)
    newest = max((directory / "orders-0").glob("*.log"))
    os.truncate(newest, newest.stat().st_size - 1)
    verified(capsys, directory, code=2)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run(["log", "verify", str(directory), "--format", "json"]) == 0
    captured = capsys.readouterr()
    assert f"{directory} is in use" in captured.err
    (flaw,) = json.loads(captured.out)["flaws"]
    assert "(perhaps only temporarily)" in flaw["problem"]


@pytest.mark.parametrize("name", ["none", "empty"])
def test_what_is_no_log_directory_is_refused_in_one_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert run(["log", "verify", str(tmp_path / name)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_damaged_file_of_topic_ids_is_one_flaw(
    log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = log_directory()
    (directory / "checkpoint-topic-ids").write_text("damaged")
    (flaw,) = verified(capsys, directory, code=2)["flaws"]
    assert flaw["file"] == "checkpoint-topic-ids"


def test_checkpoints_that_hold_nothing_yet_are_sound(
    log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = log_directory(is_closed=False)
    (directory / "recovery-point-offset-checkpoint").write_text("")
    assert verified(capsys, directory, code=0)["flaws"] == []
