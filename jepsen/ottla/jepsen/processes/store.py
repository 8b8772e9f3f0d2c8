"""Creates, reads and lists the folders of runs: `store/<test>/<time>/`, one for each workload of a
run.

A folder is complete in itself: test.json (the plan), history.jsonl (the events, written during the
run), results.json (the verdict), faults.json, nodes/ (the nodes' logs), and pictures. All folders
of one run have the same time. Files that they share are hard links.
"""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ottla.jepsen.processes.runs.run_plan import RunPlan
from ottla.model.errors import ConfigError

STORE_DEFAULT = "store"
TEST_FILE = "test.json"
HISTORY_FILE = "history.jsonl"
RESULTS_FILE = "results.json"
FAULTS_FILE = "faults.json"
NODES_FOLDER = "nodes"
TIME_FORMAT = "%Y%m%dT%H%M%SZ"
VERDICTS = (True, False, "unknown")


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The folder of one workload of one run."""

    path: Path

    @property
    def history(self) -> Path:
        """Path of the run's history file, with one event per line."""
        return self.path / HISTORY_FILE

    @property
    def nodes(self) -> Path:
        """Path of the directory with the logs of the run's nodes."""
        return self.path / NODES_FOLDER

    @property
    def is_judged(self) -> bool:
        """True if the run has a verdict (the file results.json)."""
        return (self.path / RESULTS_FILE).exists()

    def write(self, name: str, content: Any) -> None:
        """Write `content` as the JSON file `name` atomically. A concurrent reader sees the old
        file, the new file, or no file."""
        part = self.path / f"{name}.part"
        part.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        part.replace(self.path / name)

    def read(self, name: str) -> Any:
        """Return the content of a JSON file in the run's folder. Raises ConfigError if the file is
        malformed."""
        path = self.path / name
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            raise ConfigError(str(path), "is not there; is this the folder of a run?") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(str(path), f"is not JSON ({error})") from None

    def test(self) -> dict[str, Any]:
        """Return the content of the run's test.json: the plan and the properties of the run."""
        found = self.read(TEST_FILE)
        if not isinstance(found, dict):
            raise ConfigError(str(self.path / TEST_FILE), "was not written by a run")
        return found

    def plan(self) -> RunPlan:
        """Return the plan of the run, parsed from test.json."""
        found = self.test().get("plan")
        if not isinstance(found, dict):
            raise ConfigError(
                str(self.path / TEST_FILE), "has no plan; it was not written by a run"
            )
        return RunPlan.from_json(found)

    def results(self) -> dict[str, Any]:
        """Return the content of the run's results.json (the verdict). Raises ConfigError if the
        file is missing or malformed."""
        found = self.read(RESULTS_FILE)
        if not isinstance(found, dict) or found.get("valid") not in VERDICTS:
            raise ConfigError(str(self.path / RESULTS_FILE), "holds no verdict; analyse it again")
        return found


class Store:
    """A folder that contains the folders of all runs."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def new(self, tests: list[str], now: datetime | None = None) -> list[RunDirectory]:
        """Create the folders of a run, one for each test, all with the same time. `now` defaults to
        the current time. Returns the folders in the order of `tests`."""
        base = (now or datetime.now(UTC)).strftime(TIME_FORMAT)
        name, count = base, 1
        while any((self.root / test / name).exists() for test in tests):
            count += 1
            name = f"{base}-{count}"
        made = []
        for test in tests:
            path = self.root / test / name
            path.mkdir(parents=True)
            made.append(RunDirectory(path))
        return made

    def runs(self) -> Iterator[RunDirectory]:
        """Yield the folder of every run in the store, by test and time."""
        for test in sorted(self.root.iterdir()) if self.root.is_dir() else ():
            for path in sorted(test.iterdir()) if test.is_dir() else ():
                if (path / TEST_FILE).exists():
                    yield RunDirectory(path)

    def latest(self, test: str) -> RunDirectory | None:
        """Return the folder of the latest run of a test that has a verdict, or None if no run has
        one."""
        judged = [run for run in self.runs() if run.path.parent.name == test and run.is_judged]
        return max(judged, key=lambda run: run.path.name, default=None)


def share(source: Path, targets: list[Path]) -> None:
    """Copy the files of the folder `source` into other folders, as hard links if the file system
    supports them."""
    for target in targets:
        shutil.copytree(source, target, copy_function=_link, dirs_exist_ok=True)


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
