"""`ottla jepsen`: exit codes and output of its verbs; findings of runs have tests of their own."""

import json
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.lab import jepsen_matrix, jepsen_plan, jepsen_view
from ottla.cli.lab.jepsen_plan import HARNESS, INVALID, UNKNOWN, code_of
from ottla.cli.lab.jepsen_serve import open_server
from ottla.cli.main import REFUSED, run
from ottla.jepsen.history import History, Recorder, event_line
from ottla.jepsen.processes.runs.run_plan import RunPlan
from ottla.jepsen.processes.runs.run_verdict import RunSummary
from ottla.jepsen.processes.store import RESULTS_FILE, TEST_FILE, RunDirectory, Store
from ottla.jepsen.report import figures
from ottla.model.install_hint import install_hint

GOOD = RunSummary(seconds=10.0, operation_count=9_000, is_read=True)


def _history() -> History:
    recorder = Recorder(lambda: 0, concurrency=1)
    sent = recorder.invoke(0, "send", [["send", "q0-0", 1]])
    from ottla.jepsen.history import EventKind

    recorder.complete(sent, EventKind.OK, [["send", "q0-0", [0, 1]]])
    return recorder.history()


def _stored(
    store: Path, *, course: RunSummary = GOOD, checkers: tuple[str, ...] = ()
) -> RunDirectory:
    """Keep a run as the harness does, without its verdict."""
    plan = RunPlan(workloads=("queue",), seconds=10)
    (directory,) = Store(store).new([plan.test_of("queue")])
    directory.write(
        TEST_FILE,
        {
            "test": plan.test_of("queue"),
            "workload": "queue",
            "plan": plan.to_json(),
            "course": course.to_json(),
            "checkers": list(checkers),
        },
    )
    directory.history.write_text("".join(map(event_line, _history().events)))
    return directory


@pytest.mark.parametrize(
    ("valids", "code"),
    [
        ([True], 0),
        ([True, True], 0),
        ([True, "unknown"], UNKNOWN),
        (["unknown", False], INVALID),
        ([], UNKNOWN),
    ],
)
def test_only_what_is_valid_throughout_ends_with_zero(valids: list[Any], code: int) -> None:
    assert code_of([{"valid": valid} for valid in valids]) == code


def test_a_stored_run_is_judged_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = _stored(tmp_path)

    assert run(["jepsen", "analyze", str(directory.path)]) == 0
    printed = capsys.readouterr().out
    assert "valid" in printed
    assert "again: ottla jepsen run --workload queue" in printed
    results = directory.results()
    assert results["valid"] is True
    assert results["figures"]["ok"] == 1


def test_without_matplotlib_a_run_is_judged_and_a_sentence_names_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    directory = _stored(tmp_path)

    assert run(["jepsen", "analyze", str(directory.path)]) == 0
    printed = capsys.readouterr()
    assert "valid" in printed.out
    assert printed.err.count(install_hint("reports")) == 1
    assert not list(directory.path.glob("*.svg"))


def test_several_runs_are_judged_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = _stored(tmp_path)
    poor = _stored(tmp_path, course=RunSummary(seconds=10.0, operation_count=9, is_read=True))

    assert run(["jepsen", "analyze", "--format", "json", str(good.path), str(poor.path)]) == 4
    first, second = json.loads(capsys.readouterr().out)
    assert (first["valid"], second["valid"]) == (True, "unknown")
    assert second["anomalies"] == {"too-few-operations": 1}


def test_what_a_checker_cannot_judge_is_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = _stored(tmp_path, checkers=("no-such-checker",))

    assert run(["jepsen", "analyze", str(directory.path)]) == UNKNOWN
    assert "the checker failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--workload", "nothing"],
        ["run", "--workload", "queue", "--nemesis", "gremlins"],
        ["run", "--workload", "queue", "--nemesis", "power-cut-all"],
        ["run", "--workload", "queue", "--for", "soon"],
        ["run", "--workload", "queue", "--clients", "telnet"],
        ["run", "--workload", "queue", "--bootstrap", "b:1", "--nemesis", "kill"],
        ["run-all", "--nemeses", "gremlins"],
        ["run-all", "--together", "0"],
        ["bugs", "gremlins"],
        ["analyze", "/no/such/folder"],
        ["serve", "/no/such/folder"],
    ],
)
def test_what_is_not_there_is_refused(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if words[0] in ("run", "run-all", "bugs"):
        words = [*words, "--store", str(tmp_path / "store")]
    assert run(["jepsen", *words]) == REFUSED
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "store").exists()


def test_a_cluster_that_is_not_there_is_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["jepsen", "run", "--workload", "queue", "--bootstrap", "localhost:1"]

    assert run([*words, "--store", str(tmp_path)]) == HARNESS
    assert "no process listens there" in capsys.readouterr().err


def test_a_matrix_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[tuple[tuple[str, ...], tuple[str, ...], bool]] = []

    def run_in_child(plan: RunPlan, root: Path) -> list[dict[str, Any]]:
        done.append((plan.workloads, plan.nemeses, plan.flush))
        if len(done) == 3:
            raise KeyboardInterrupt
        directories = Store(root).new([plan.test_of(name) for name in plan.workloads])
        results = []
        for name, directory in zip(plan.workloads, directories, strict=True):
            directory.write(
                TEST_FILE,
                {"workload": name, "plan": plan.to_json(), "course": GOOD.to_json()},
            )
            figures = {"operations": 1, "ops_per_s": 900.0, "faults": 3}
            output = {"nemesis": list(plan.nemeses), "figures": figures, "reason": None}
            results.append({"valid": True, "workload": name, **output})
            directory.write(RESULTS_FILE, results[-1])
        return results

    monkeypatch.setattr(jepsen_matrix, "run_in_child", run_in_child)
    words = ["jepsen", "run-all", "--workloads", "queue,offsets,group", "--store", str(tmp_path)]
    words += ["--nemeses", "kill,power-cut-all", "--for", "20s"]

    run(words)
    assert run(words) == 0
    assert done == [
        (("queue", "offsets"), ("kill",), False),
        (("group",), ("kill",), False),
        (("queue", "offsets"), ("power-cut-all",), True),
        (("queue", "offsets"), ("power-cut-all",), True),
        (("group",), ("power-cut-all",), True),
    ]
    printed = capsys.readouterr()
    lines = [line for line in printed.err.splitlines() if " × " in line][-6:]
    assert [line.endswith("valid, kept") for line in lines] == [True] * 3 + [False] * 3
    header, *rows = printed.out.splitlines()[-7:]
    assert header.split()[:4] == ["WORKLOAD", "NEMESIS", "VERDICT", "OPS"]
    assert rows[0].split() == ["queue", "kill", "valid", "1", "900", "3", "-"]
    run([*words[:-1], "30s"])
    assert len(done) == 9, "a longer run is another one"


def test_a_harness_that_breaks_costs_its_own_cells_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\nkill -SEGV $$\n")
    dying.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(dying))
    words = ["jepsen", "run-all", "--workloads", "queue", "--store", str(tmp_path / "store")]

    assert run([*words, "--nemeses", "kill,pause"]) == UNKNOWN
    printed = capsys.readouterr()
    assert printed.err.count("the harness ended with code -11") == 2
    assert "queue × kill: unknown, the harness broke" in printed.err
    assert [line.split()[:3] for line in printed.out.splitlines()] == [
        ["WORKLOAD", "NEMESIS", "VERDICT"],
        ["queue", "kill", "unknown"],
        ["queue", "pause", "unknown"],
    ]


def test_the_store_is_served_to_this_machine_alone(tmp_path: Path) -> None:
    directory = _stored(tmp_path)
    with open_server(tmp_path, 0) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            host, port = server.server_address[:2]
            path = directory.history.relative_to(tmp_path)
            with urllib.request.urlopen(f"http://{host!s}:{port}/{path}") as answer:
                assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
                assert answer.read() == directory.history.read_bytes()
        finally:
            server.shutdown()
            serving.join()

    assert host == "127.0.0.1"


def test_workloads_nemeses_and_runs_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = _stored(tmp_path)

    assert run(["jepsen", "list", str(tmp_path), "--format", "json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert "queue" in {row["workload"] for row in output["workloads"]}
    assert "kill" in {row["nemesis"] for row in output["nemeses"]}
    assert [row["run"] for row in output["runs"]] == [str(directory.path)]
    assert all(row["what"] for row in [*output["workloads"], *output["nemeses"]])


def test_the_progress_line_has_the_phase_and_the_counts() -> None:
    from collections import Counter

    from ottla.jepsen.processes.runs.run_status import RunPhase, Status

    plan = RunPlan(workloads=("queue", "offsets"), nemeses=("kill",))
    status = Status(
        phase=RunPhase.LOAD,
        phase_s=15.0,
        phase_s_max=60.0,
        operation_count=12_345,
        ops_per_s=812.4,
        fault="kill",
        fault_count=2,
        anomalies=Counter({"duplicate": 1}),
    )

    assert jepsen_view.ProgressLine(plan).line(status) == (
        "queue,offsets × kill  load 15/60 s [#####...............]  12,345 ops (812/s)  2 faults"
        "  duplicate × 1  now: kill"
    )
    assert jepsen_plan.names_of("a, b,,c") == ("a", "b", "c")
