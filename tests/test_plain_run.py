"""Division of a plain run of `pytest` among processes."""

from importlib.util import cache_from_source
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from tests.conftest import (
    HAS_BYTECODE,
    has_bytecode,
    is_plain,
    pytest_cmdline_main,
    pytest_collection,
    pytest_configure_node,
    send_needed,
)

TESTPATHS, ARGS = pytest.Config.ArgsSource.TESTPATHS, pytest.Config.ArgsSource.ARGS


def config_of(source: pytest.Config.ArgsSource = TESTPATHS, **options: Any) -> Any:
    usual = {"numprocesses": None, "dist": "no", "usepdb": False, "collectonly": False}
    option = SimpleNamespace(**{**usual, "markexpr": "", "keyword": "", **options})
    return SimpleNamespace(option=option, args_source=source)


def test_a_plain_run_is_divided_by_files() -> None:
    config = config_of()
    pytest_cmdline_main(config)
    assert config.option.numprocesses >= 1
    assert config.option.dist == "loadfile"


@pytest.mark.parametrize(
    "config",
    [
        config_of(ARGS),
        config_of(markexpr="long"),
        config_of(keyword="quota"),
        config_of(usepdb=True),
        config_of(collectonly=True),
        config_of(numprocesses=0),
        config_of(numprocesses=3),
    ],
)
def test_any_other_run_has_the_processes_that_its_command_line_names(config: Any) -> None:
    wanted = config.option.numprocesses
    pytest_cmdline_main(config)
    assert (config.option.numprocesses, config.option.dist) == (wanted, "no")


@pytest.mark.parametrize("source", [TESTPATHS, ARGS])
def test_a_process_of_a_run_is_of_its_kind_and_starts_no_others(
    source: pytest.Config.ArgsSource,
) -> None:
    whole = config_of(source)
    part = config_of(ARGS)
    part.workerinput = {}
    pytest_configure_node(SimpleNamespace(config=whole, workerinput=part.workerinput))
    assert is_plain(part) is is_plain(whole) is (source is TESTPATHS)
    pytest_cmdline_main(part)
    assert part.option.numprocesses is None


@pytest.mark.parametrize("worker", ["gw0", "gw1"])
def test_the_first_process_compiles_all_modules_before_others_collect(
    worker: str, tmp_path: Path
) -> None:
    config = config_of(basetemp=str(tmp_path / f"popen-{worker}"))
    config.workerinput = {"workerid": worker, HAS_BYTECODE: False}
    collected = tmp_path / "collected"
    if worker == "gw1":
        collected.touch()
    collection = pytest_collection(SimpleNamespace(config=config))  # type: ignore[arg-type]
    next(collection)
    assert collected.exists() is (worker == "gw1")
    with pytest.raises(StopIteration):
        next(collection)
    assert collected.exists()


def report_of(when: Literal["setup", "call", "teardown"], **changed: Any) -> pytest.TestReport:
    fields: dict[str, Any] = {"outcome": "passed", "longrepr": None, "duration": 0.01, **changed}
    location = ("tests/test_a.py", 7, "test_a")
    return pytest.TestReport("tests/test_a.py::test_a", location, {"a": 1}, when=when, **fields)


def sent(report: pytest.TestReport, config: pytest.Config) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    data = config.hook.pytest_report_to_serializable(config=config, report=report)
    send_needed(lambda name, **values: found.append(values["data"]), "testreport", data=data)
    return found


@pytest.mark.parametrize(
    ("when", "changed", "is_sent"),
    [
        ("call", {}, True),
        ("setup", {}, False),
        ("teardown", {}, False),
        ("setup", {"duration": 2.0}, True),
        ("setup", {"outcome": "failed", "longrepr": "it broke"}, True),
        ("teardown", {"outcome": "failed", "longrepr": "it broke"}, True),
        ("setup", {"outcome": "skipped", "longrepr": ("a.py", 7, "no Java")}, True),
        ("teardown", {"sections": [("Captured stdout", "text")]}, True),
    ],
)
def test_a_process_of_a_run_reports_all_but_fast_steps_that_passed(
    when: Literal["setup", "call", "teardown"],
    changed: dict[str, Any],
    is_sent: bool,
    pytestconfig: pytest.Config,
) -> None:
    report = report_of(when, **changed)
    found = sent(report, pytestconfig)
    assert len(found) == is_sent
    for data in found:
        read = pytestconfig.hook.pytest_report_from_serializable(config=pytestconfig, data=data)
        for name in ("nodeid", "location", "outcome", "longrepr", "when", "sections", "duration"):
            assert getattr(read, name) == getattr(report, name)


def test_what_a_report_has_besides_is_sent_whole(pytestconfig: pytest.Config) -> None:
    report = report_of("call", user_properties=[("seed", 7)])
    report.wasxfail = "a reason"
    (data,) = sent(report, pytestconfig)
    assert data["user_properties"] == [("seed", 7)]
    assert data["wasxfail"] == "a reason"


@pytest.mark.parametrize("name", ["logstart", "logfinish"])
def test_no_message_says_that_a_test_begins_or_ends(name: str) -> None:
    found: list[str] = []
    send_needed(lambda name, **values: found.append(name), name, nodeid="a")
    send_needed(lambda name, **values: found.append(name), "workerfinished", workeroutput={})
    assert found == ["workerfinished"]


@pytest.mark.parametrize(("name", "is_compiled"), [("conftest", False), ("test_tidy", True)])
def test_other_runs_do_not_compile_the_tests_of_a_plain_one(
    name: str, is_compiled: bool, tmp_path: Path
) -> None:
    compiled = Path(cache_from_source(str(tmp_path / f"{name}.py")))
    compiled.parent.mkdir(parents=True)
    compiled.touch()
    assert has_bytecode(tmp_path) is is_compiled
