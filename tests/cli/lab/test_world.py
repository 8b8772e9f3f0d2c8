"""`ottla world`: its output and exit codes; findings of the engines have tests of their own."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.lab import world_soak
from ottla.cli.lab.world import FOUND
from ottla.cli.main import REFUSED, run
from ottla.jepsen.world.corpus import load
from ottla.jepsen.world.soak import PLAN

RUN = ["world", "run", "--engine", "walk", "--subject", "raft", "--processes", "1"]
BUG = ["--mutant", "raft-majority"]


def test_a_clean_seed_tells_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*RUN, "--seed", "3", "--format", "json"]) == 0
    output = json.loads(capsys.readouterr().out)

    assert (output["seed"], output["seeds"], output["violations"]) == (3, 1, 0)
    assert output["events"] > 0
    assert len(output["trace_hash"]) == 32
    assert run([*RUN, "--seed", "3"]) == 0
    assert output["trace_hash"] in capsys.readouterr().out


@pytest.mark.interpreted_only("plants a bug in the place of a function")
def test_a_failure_is_stored_and_can_be_reported_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run([*RUN, *BUG, "--seeds", "5", "--keep", str(tmp_path), "--format", "json"])
    printed = capsys.readouterr()
    output = json.loads(printed.out)

    assert code == FOUND
    assert output["failures"]
    path = Path(output["files"][0])
    assert f"ottla world replay {path}" in printed.err
    assert len(load(path).decisions) < 40, "it was made small"
    assert run(["world", "replay", str(path)]) == FOUND
    story = capsys.readouterr().out
    assert output["failures"][0]["invariant"] in story


def test_a_time_bounds_a_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*RUN, "--for", "300ms", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["seeds"] > 1


def test_two_processes_find_what_one_does(capsys: pytest.CaptureFixture[str]) -> None:
    hashes = []
    for processes in ("1", "2"):
        command = [*RUN[:-1], processes, "--seeds", "40", "--format", "json"]
        assert run(command) == 0
        hashes.append(json.loads(capsys.readouterr().out)["trace_hash"])

    assert hashes[0] == hashes[1]


def test_rare_states_may_be_demanded(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*RUN, "--demand-rare"]) == FOUND
    assert "never reached: " in capsys.readouterr().err


@pytest.mark.interpreted_only("plants a bug in the place of a function")
def test_bugs_are_planted_and_found(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["world", "bugs", "raft-majority", "--processes", "1", "--format", "json"]

    assert run(command) == 0
    (row,) = json.loads(capsys.readouterr().out)["mutants"]
    assert row["seed"] is not None


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--engine", "walk", "--subject", "nothing"],
        ["run", "--engine", "walk", "--for", "soon"],
        ["run", "--engine", "walk", "--mutant", "none"],
        ["soak", "--for", "ever"],
        ["replay", "/no/such/file"],
        ["bugs", "none"],
    ],
)
def test_what_is_not_there_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["world", *words]) == REFUSED
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_engines_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["world", "list"]) == 0
    assert "raft" in capsys.readouterr().out


def test_a_soak_that_a_signal_ends_early_tells_what_was_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour's search, and SIGTERM when it writes for the first time how it stands."""
    write = world_soak._write
    written: list[int] = []

    def write_and_signal(folder: Path, facts: dict[str, Any]) -> None:
        write(folder, facts)
        written.append(facts["totals"]["schedules"])
        if len(written) == 1:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(world_soak, "WRITE_SECONDS", 0.0)
    monkeypatch.setattr(world_soak, "_write", write_and_signal)
    before = signal.getsignal(signal.SIGTERM)
    words = ["--for", "60m", "--processes", "1", "--seed", "1000", "--out", str(tmp_path)]

    assert run(["world", "soak", *words, "--format", "json"]) == 0

    output = json.loads(capsys.readouterr().out)
    assert output["is_stopped_early"]
    assert output["totals"]["schedules"] == written[-1] > 0
    assert [row["engine"] for row in output["rows"]] == [part.engine for part in PLAN]
    assert json.loads((tmp_path / "soak.json").read_text()) == output
    assert "| walk raft |" in (tmp_path / "soak.md").read_text()
    assert signal.getsignal(signal.SIGTERM) is before
