"""Facts of real Pythons, and of a real query."""

import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import run
from ottla.model.errors import ConfigError
from ottla.pipeline.doctor.doctor_facts import WORKER_NEEDS, ask, look, spark_version
from ottla.pipeline.doctor.doctor_reach import brokers_reached
from ottla.pipeline.doctor.doctor_trial import try_query
from ottla.pipeline.java import find_java


def program(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def is_alive(stat_path: Path) -> bool:
    """Return True if a process runs, and is no zombie."""
    try:
        return stat_path.read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_this_python_has_what_a_worker_needs() -> None:
    reported = ask(sys.executable, "test", WORKER_NEEDS, os.environ)
    assert reported.version == sys.version_info[:2]
    assert set(reported.packages) == set(WORKER_NEEDS)
    assert all(one.version and not one.problem for one in reported.packages.values()), reported


def test_what_is_not_installed_and_what_breaks_when_imported_are_distinguished(
    tmp_path: Path,
) -> None:
    (tmp_path / "broken.py").write_text("raise OSError('no such library')")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    reported = ask(sys.executable, "test", ["nothing_of_that_name", "broken"], environ).packages
    assert reported["nothing_of_that_name"] == ("", "")
    assert reported["broken"].problem == "OSError: no such library"


def test_a_worker_that_does_not_run_is_reported_with_its_last_words(tmp_path: Path) -> None:
    assert ask("/nowhere/python", "test", (), {}).problem == "there is no such program"
    silent = program(tmp_path / "silent", "exit 3")
    assert ask(silent, "test", (), {}).problem == "ended with 3"
    loud = program(tmp_path / "loud", "echo 'cannot start' >&2; exit 1")
    assert ask(loud, "test", (), {}).problem == "cannot start"
    (tmp_path / "no-format").write_bytes(b"\0")
    (tmp_path / "no-format").chmod(0o755)
    reported = ask(str(tmp_path / "no-format"), "test", (), {})
    assert (reported.version, bool(reported.problem)) == (None, True)


def test_the_environment_says_which_worker_spark_takes(tmp_path: Path) -> None:
    plain = program(tmp_path / "python3", "echo 'too plain' >&2; exit 1")
    path = {"PATH": str(tmp_path)}
    unset = look({**os.environ, **path, "PYSPARK_PYTHON": ""}, [])
    assert unset.worker.program == sys.executable
    assert unset.plain_worker is not None
    assert (unset.plain_worker.program, unset.plain_worker.problem) == (plain, "too plain")
    named = look({**os.environ, "PYSPARK_PYTHON": plain}, [])
    assert (named.worker.program, named.plain_worker) == (plain, None)


def test_a_spark_is_known_by_its_jars(tmp_path: Path) -> None:
    assert spark_version(str(tmp_path)) == ""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-4.3.0.jar").touch()
    assert spark_version(str(tmp_path)) == "4.3.0"


def test_a_query_that_is_late_is_ended_with_its_jvm(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    program(java, f"echo $$ >{tmp_path}/pid; sleep 300")
    trial = try_query(os.environ, java_home=str(tmp_path), timeout_seconds=2)
    assert trial.is_late
    stat_path = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    deadline = time.monotonic() + 60
    while is_alive(stat_path):
        assert time.monotonic() < deadline, "the JVM outlived its query"
        time.sleep(0.02)


def test_a_query_that_fails_is_reported_in_one_line(tmp_path: Path) -> None:
    trial = try_query(os.environ, java_home=str(tmp_path))
    assert not trial.is_late
    assert trial.rows == 0
    assert trial.problem
    assert "\n" not in trial.problem


def test_a_time_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "spark", "--timeout=0"]) == 1
    assert "it must be above 0 seconds" in capsys.readouterr().err


def test_unreachable_brokers_are_reported_in_one_sentence() -> None:
    assert brokers_reached("localhost:1") == (
        0,
        ["cannot connect to localhost:1: no process listens there"],
    )


def test_the_command_looks_tries_a_query_and_tells_machines_the_same(
    live_cluster: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        find_java()
    except ConfigError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"Spark needs a Java 17: {error}")
    words = ["doctor", "spark", "--format=json", f"--bootstrap={live_cluster.bootstrap}"]
    assert run(words) == 0, capsys.readouterr().out
    reported = json.loads(capsys.readouterr().out)
    assert reported["fit"] is True
    states = [(one["question"], one["state"]) for one in reported["findings"]]
    assert states[-2:] == [("query", "ok"), ("brokers", "ok")]
    assert reported["findings"][-1]["found"] == "1 broker answers a worker"
