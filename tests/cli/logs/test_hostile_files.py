"""No file, whatever its bytes, ends a command with a traceback: the code is 0 or 2."""

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.cli.main import run
from ottla.wire.batch_builder import build_batch

MakeDirectory = Callable[..., Path]

SMALL_FILES = (
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "checkpoint-topic-ids",
    ".kafka_cleanshutdown",
    "orders-0/leader-epoch-checkpoint",
    "orders-0/partition.metadata",
)


@pytest.mark.parametrize("name", SMALL_FILES)
def test_a_small_file_with_any_flip_cut_or_zeroed_tail_is_shown(
    name: str, log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    path = log_directory() / name
    data = path.read_bytes()
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 0x81
        for changed in (bytes(flipped), data[:at], data[:at] + bytes(len(data) - at)):
            path.write_bytes(changed)
            assert run(["log", "checkpoint", str(path)]) in (0, 2), changed
            shown = capsys.readouterr()
            assert shown.err == ""
            assert "\0" not in shown.out


@pytest.mark.parametrize("verb", ["dump", "index", "snapshot"])
def test_files_that_are_cut_are_shown(
    verb: str, log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = log_directory() / "orders-0"
    for path in sorted(directory.iterdir()):
        os.truncate(path, path.stat().st_size // 2)
    for options in ((), ("--format", "json"), ("--records",) if verb == "dump" else ()):
        assert run(["log", verb, str(directory), *options]) == 2
        assert capsys.readouterr().err == ""


def test_a_file_that_cannot_be_read_is_a_problem_of_its_own(
    log_directory: MakeDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = log_directory() / "orders-0"
    (log,) = list(directory.glob("*00.log"))
    log.unlink()
    os.mkfifo(log)
    assert run(["log", "dump", str(log)]) == 1
    assert "is no file" in capsys.readouterr().err


def test_records_steer_no_terminal_and_are_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(build_batch([(5, b"\x1b[2J", "é".encode() * 300)]))
    assert run(["log", "dump", str(path), "--records", "--value-bytes", "11"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert "\x1b" not in line
    assert line.endswith("ééééé… (600 bytes)")


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_recovery_of_any_bytes_is_shown(
    log_directory: MakeDirectory, data: st.DataObject
) -> None:
    directory = log_directory(f"{next(_NUMBERS)}", is_closed=False)
    files = sorted(file for file in directory.rglob("*") if file.is_file())
    file = data.draw(st.sampled_from(files))
    before = file.read_bytes()
    at = data.draw(st.integers(0, max(0, len(before) - 1)))
    flipped = bytearray(before)
    flipped[at : at + 1] = bytes(byte ^ 0x81 for byte in before[at : at + 1])
    cut, zeroed = before[:at], before[:at] + bytes(len(before) - at)
    changed = data.draw(st.sampled_from([bytes(flipped), cut, zeroed]))
    file.write_bytes(changed)
    assert run(["log", "recover", str(directory), "--all"]) in (0, 1, 2)
    assert run(["log", "verify", str(directory), "--records"]) in (0, 2)
    assert file.read_bytes() == changed


_NUMBERS = count()
