"""`ottla log recover` shows the work of a start after a crash, and does exactly that on request."""

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import run

MakeDirectory = Callable[..., Path]


def recovered(
    capsys: pytest.CaptureFixture[str], directory: Path, *options: str, code: int = 0
) -> dict[str, Any]:
    assert run(["log", "recover", str(directory), "--format", "json", *options]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(directory)): file.read_bytes()
        for file in directory.rglob("*")
        if file.is_file() and file.name != ".lock"
    }


def torn(directory: Path) -> Path:
    """Damage a killed directory: a torn tail, and an index that is gone."""
    logs = sorted((directory / "orders-0").glob("*.log"))
    os.truncate(logs[-1], logs[-1].stat().st_size - 5)
    logs[0].with_suffix(".index").unlink()
    return directory


def test_nothing_is_written_without_yes(
    log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = torn(log_directory(is_closed=False))
    before = contents(directory)
    assert run(["log", "recover", str(directory)]) == 2
    captured = capsys.readouterr()
    assert contents(directory) == before
    assert not (directory / ".lock").exists()
    assert "nothing was changed" in captured.err
    assert "bytes of the log are cut off" in captured.out


@pytest.mark.parametrize("options", [(), ("--all",)], ids=["as a start does", "all"])
def test_what_is_shown_is_what_is_done(
    options: tuple[str, ...], log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = torn(log_directory(is_closed=False))
    before = contents(directory)
    shown = recovered(capsys, directory, "--yes", *options)
    after = contents(directory)
    assert shown["is_done"]
    made = {each["path"] for each in shown["changes"] if each["action"] == "make"}
    removed = {each["path"] for each in shown["changes"] if each["action"] == "remove"}
    changed = {each["path"] for each in shown["changes"] if each["action"] in ("cut", "write")}
    assert made == after.keys() - before.keys()
    assert removed == before.keys() - after.keys()
    assert changed == {name for name in before.keys() & after if before[name] != after[name]}
    for each in shown["changes"]:
        if each["after_bytes"] is not None:
            assert len(after[each["path"]]) == each["after_bytes"], each


def test_a_recovered_directory_is_sound_and_was_stopped_cleanly(
    log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = torn(log_directory(is_closed=False))
    assert run(["log", "verify", str(directory)]) == 2
    capsys.readouterr()
    recovered(capsys, directory, "--yes")
    assert run(["log", "verify", str(directory)]) == 0
    assert json.loads((directory / ".kafka_cleanshutdown").read_text())["brokerEpoch"] == -1
    capsys.readouterr()
    again = recovered(capsys, directory)
    assert again["was_clean"]
    assert again["changes"] == []


def test_damage_below_the_recovery_point_is_cut_off_with_all_alone(
    log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = log_directory()
    logs = sorted((directory / "orders-0").glob("*.log"))
    data = bytearray(logs[1].read_bytes())
    data[80] ^= 1
    logs[1].write_bytes(data)
    assert recovered(capsys, directory)["changes"] == []
    shown = recovered(capsys, directory, "--all", "--yes")
    lost = {each["path"]: each for each in shown["changes"] if each["path"].endswith(".log")}
    assert lost[f"orders-0/{logs[1].name}"]["after_bytes"] == 0
    assert {Path(name).name for name in lost} == {log.name for log in logs[1:]}
    assert run(["log", "verify", str(directory)]) == 0


def test_a_directory_in_use_is_refused_in_one_sentence(
    log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = torn(log_directory(is_closed=False))
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for options in ((), ("--yes",)):
            assert run(["log", "recover", str(directory), *options]) == 1
            captured = capsys.readouterr()
            assert captured.out == ""
            assert captured.err.count("\n") == 1
            assert "is in use by another process" in captured.err


def test_a_partition_that_lies_stays_offline_and_leaves_no_clean_marker(
    log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = torn(log_directory(is_closed=False))
    shutil.copytree(directory / "orders-0", directory / "orders-1")
    (directory / "orders-1" / "partition.metadata").write_text("damaged")
    shown = recovered(capsys, directory, "--yes", code=2)
    assert list(shown["offline"]) == ["orders-1"]
    assert list(shown["end_offsets"]) == ["orders-0"]
    assert not (directory / ".kafka_cleanshutdown").exists()


def test_a_directory_without_a_topic_id_is_shown_to_be_set_aside(
    log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = log_directory(is_closed=False)
    (directory / "orders-0" / "partition.metadata").unlink()
    (directory / "checkpoint-topic-ids").unlink()
    assert run(["log", "recover", str(directory), "--dry-run"]) == 0
    # The name is longer than its column, and continues on the next line.
    assert "-stray" in "".join(capsys.readouterr().out.split())
    assert (directory / "orders-0").is_dir()


def test_a_partition_is_no_log_directory(
    log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = log_directory(is_closed=False)
    assert run(["log", "recover", str(directory / "orders-0"), "--yes"]) == 1
    assert "it has no meta.properties" in capsys.readouterr().err
