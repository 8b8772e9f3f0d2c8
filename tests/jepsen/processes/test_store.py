"""Directories of runs."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ottla.jepsen.processes.runs.run_plan import RunPlan
from ottla.jepsen.processes.store import RESULTS_FILE, TEST_FILE, RunDirectory, Store, share
from ottla.model.errors import ConfigError

NOON = datetime(2026, 7, 31, 12, tzinfo=UTC)
PLAN = RunPlan(workloads=("queue", "offsets"), nemeses=("kill",))


def _kept(store: Store, *tests: str) -> list[RunDirectory]:
    made = store.new(list(tests), NOON)
    for directory in made:
        directory.write(TEST_FILE, {"plan": PLAN.to_json()})
    return made


def test_workloads_of_one_run_have_folders_of_one_time(tmp_path: Path) -> None:
    queue, offsets = Store(tmp_path).new(["queue-kill", "offsets-kill"], NOON)

    assert queue.path == tmp_path / "queue-kill" / "20260731T120000Z"
    assert offsets.path == tmp_path / "offsets-kill" / "20260731T120000Z"


def test_two_runs_of_one_second_have_folders_of_their_own(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (first,) = store.new(["queue-kill"], NOON)

    second, beside = store.new(["queue-kill", "offsets-kill"], NOON)

    assert second.path != first.path
    assert second.path.name == beside.path.name


def test_what_was_to_be_done_is_read_back(tmp_path: Path) -> None:
    (made,) = _kept(Store(tmp_path), "queue-kill")

    assert RunDirectory(made.path).plan() == PLAN


def test_the_latest_run_of_a_test_is_the_last_one_with_a_verdict(tmp_path: Path) -> None:
    store = Store(tmp_path)
    runs = [_kept(store, "queue-kill")[0] for _ in range(3)]
    for run in runs[:2]:
        run.write(RESULTS_FILE, {"valid": True})
    _kept(store, "offsets-kill")[0].write(RESULTS_FILE, {"valid": True})

    assert store.latest("queue-kill") == runs[1]
    assert store.latest("group-kill") is None
    assert len(list(store.runs())) == 4


def test_a_folder_that_no_run_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is this the folder of a run"):
        RunDirectory(tmp_path).test()
    (tmp_path / TEST_FILE).write_text("{")
    with pytest.raises(ConfigError, match="is not JSON"):
        RunDirectory(tmp_path).test()
    (tmp_path / TEST_FILE).write_text('{"plan": {}}')
    with pytest.raises(ConfigError, match="has no workload"):
        RunDirectory(tmp_path).plan()


@pytest.mark.parametrize("text", ["[]", "{}", '{"valid": "perhaps"}', '{"valid": null}'])
def test_results_without_a_verdict_are_no_results(tmp_path: Path, text: str) -> None:
    (tmp_path / RESULTS_FILE).write_text(text)
    with pytest.raises(ConfigError, match="no verdict"):
        RunDirectory(tmp_path).results()


def test_shared_files_are_in_every_folder(tmp_path: Path) -> None:
    source = tmp_path / "one"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "b1.log").write_text("said")

    share(source, [tmp_path / "two", tmp_path / "three"])

    assert (tmp_path / "three" / "deep" / "b1.log").read_text() == "said"
