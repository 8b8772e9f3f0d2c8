"""Division of a plain run of `pytest` among processes."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import (
    HAS_BYTECODE,
    is_plain,
    pytest_cmdline_main,
    pytest_collection,
    pytest_configure_node,
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
