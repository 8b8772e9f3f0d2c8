"""Where runs are kept: `store/<test>/<time>/`, one folder a workload of a run.

A folder is whole in itself: test.json (what was to be done), history.jsonl (what happened, written
while it happens), results.json (the verdict), faults.json, nodes/ (the nodes' logs), and pictures.
Folders of one run on one cluster have one time; files they share are hard links.
"""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ottla.jepsen.processes.run_plan import RunPlan
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
        """The history: one event a line."""
        return self.path / HISTORY_FILE

    @property
    def nodes(self) -> Path:
        """What the nodes wrote."""
        return self.path / NODES_FOLDER

    @property
    def is_judged(self) -> bool:
        """Whether there is a verdict."""
        return (self.path / RESULTS_FILE).exists()

    def write(self, name: str, content: Any) -> None:
        """Write a JSON file at once: a reader sees the old one, the new one or none."""
        part = self.path / f"{name}.part"
        part.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        part.replace(self.path / name)

    def read(self, name: str) -> Any:
        """Read a JSON file; ConfigError says what is wrong with it."""
        path = self.path / name
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            raise ConfigError(str(path), "is not there; is this the folder of a run?") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(str(path), f"is not JSON ({error})") from None

    def test(self) -> dict[str, Any]:
        """Return test.json."""
        found = self.read(TEST_FILE)
        if not isinstance(found, dict):
            raise ConfigError(str(self.path / TEST_FILE), "was not written by a run")
        return found

    def plan(self) -> RunPlan:
        """Return what the run was to do."""
        found = self.test().get("plan")
        if not isinstance(found, dict):
            raise ConfigError(
                str(self.path / TEST_FILE), "has no plan; it was not written by a run"
            )
        return RunPlan.from_json(found)

    def results(self) -> dict[str, Any]:
        """Return the verdict; ConfigError when there is none that can be read."""
        found = self.read(RESULTS_FILE)
        if not isinstance(found, dict) or found.get("valid") not in VERDICTS:
            raise ConfigError(str(self.path / RESULTS_FILE), "holds no verdict; analyse it again")
        return found


class Store:
    """All runs below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def new(self, tests: list[str], now: datetime | None = None) -> list[RunDirectory]:
        """Make the folders of a run, one for each test, all of one time."""
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
        """Yield every run, by test and time."""
        for test in sorted(self.root.iterdir()) if self.root.is_dir() else ():
            for path in sorted(test.iterdir()) if test.is_dir() else ():
                if (path / TEST_FILE).exists():
                    yield RunDirectory(path)

    def latest(self, test: str) -> RunDirectory | None:
        """Return the last judged run of a test."""
        judged = [run for run in self.runs() if run.path.parent.name == test and run.is_judged]
        return max(judged, key=lambda run: run.path.name, default=None)


def share(source: Path, targets: list[Path]) -> None:
    """Give folders the same files as `source` has: hard links where the file system has them."""
    for target in targets:
        shutil.copytree(source, target, copy_function=_link, dirs_exist_ok=True)


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
