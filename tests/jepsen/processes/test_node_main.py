"""A node with a planted bug, and that no other node can have one."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from ottla.jepsen.processes import node_main
from ottla.jepsen.processes.node_main import VARIABLE
from ottla.jepsen.processes.runs.run_bugs import PLANTED, found_by
from ottla.jepsen.world.bugs import bank

ROOT = Path(__file__).parents[3]
MODULE = "ottla.jepsen.processes.node_main"


def _run(bug: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", MODULE, *words],
        env={**os.environ, VARIABLE: bug},
        capture_output=True,
        text=True,
    )


@pytest.mark.interpreted_only("plants a bug in the place of a function")
def test_it_is_the_ordinary_command_that_reports_its_planted_bug() -> None:
    done = _run("acknowledged-at-append", "version")

    assert done.returncode == 0
    assert done.stdout.startswith(f"{version('ottla')} (")
    assert done.stderr.startswith("planted: acknowledged-at-append: ")


@pytest.mark.interpreted_only("plants a bug in the place of a function")
def test_the_command_that_runs_in_it_has_the_bug() -> None:
    script = (
        f"import sys, runpy; sys.argv = ['{MODULE}', 'version']; import atexit\n"
        "from ottla.broker.replicas.partition import Partition\n"
        "import ottla.cli.main as command\n"
        "before, ran = Partition.acknowledgement, command.main\n"
        "def report(*_): print(Partition.acknowledgement is not before)\n"
        "command.main = report\n"
        f"runpy.run_module('{MODULE}', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, VARIABLE: "acknowledged-at-append"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "True\n"


@pytest.mark.parametrize("bug", ["", "gremlins"])
def test_a_bug_that_there_is_not_starts_no_node(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, bug)

    with pytest.raises(SystemExit, match="the bug bank has no"):
        node_main.main()


def test_nothing_in_service_reads_the_variable() -> None:
    folders = [path for path in ROOT.iterdir() if (path / "ottla").is_dir()]
    readers = {
        str(path.relative_to(ROOT))
        for folder in folders
        for path in folder.rglob("*.py")
        if VARIABLE in path.read_text()
    }

    assert {Path(reader).parts[0] for reader in readers} == {"jepsen"}


def test_every_bug_for_real_processes_is_in_the_bank_and_has_its_run() -> None:
    assert len(PLANTED) >= 5
    for name, bug in PLANTED.items():
        assert bank.mutant(name).sentence
        assert bug.plan.planted == name
        assert bug.anomalies


def test_a_bug_is_found_by_its_own_anomaly_with_what_proves_it() -> None:
    bug = PLANTED["duplicates-appended"]

    def results(anomaly: str, operations: list[int], valid: object = False) -> list[dict[str, Any]]:
        finding = {"anomaly": anomaly, "operations": operations, "detail": "", "key": None}
        return [{"verdicts": [{"valid": valid, "findings": [finding]}]}]

    assert found_by(bug, results("duplicate", [3, 4]))
    assert found_by(bug, results("duplicate", [])) is None
    assert found_by(bug, results("duplicate", [3, 4], True)) is None
    assert found_by(bug, results("unseen", [3])) is None
