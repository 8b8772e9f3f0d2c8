"""Files of failing runs: the test, its plan and its faults, and the timeline as a page.

`ottla world replay FILE` and `pytest --world-replay FILE` repeat the run from such a file.
"""

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from zlib import crc32

from ottla.testing.world.plans import FaultSchedule, WorldPlan
from ottla.testing.world.timeline import Timeline

FOLDER = ".ottla-world"
FOLDER_VARIABLE = "OTTLA_WORLD_FOLDER"
"""Environment variable with the folder for files of failing runs. If it is empty, no file is
written."""

REPLAY_VARIABLE = "OTTLA_WORLD_REPLAY"
"""Environment variable with the file to repeat. `pytest --world-replay` sets it."""

TEST_VARIABLE = "PYTEST_CURRENT_TEST"
"""Name of the environment variable in which pytest stores the running test and its phase."""

NAME_LENGTH_MAX = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleChoices:
    """All choices that Hypothesis made for an example of a state machine: its rules and their
    arguments."""

    version: str
    """Version of Hypothesis that made the choices. Other versions cannot repeat them."""
    blob: str
    """The choices, encoded as for `hypothesis.reproduce_failure`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingRun:
    """A failed run, with all data that are necessary to repeat it."""

    test: str
    """pytest's id of the test that failed. Empty if pytest did not run it."""
    plan: WorldPlan
    faults: FaultSchedule
    rules: RuleChoices | None = None
    """Choices of a state machine's rules. None if the test is a function."""
    error: str = ""
    """Type and message of the exception, for readers of the file."""

    @property
    def file_name(self) -> str:
        """Name of the file in which this run is saved. It is the same for all runs of one test."""
        words = re.sub(r"\W+", "-", self.test.rpartition("/")[2]).strip("-") or "run"
        if len(words) > NAME_LENGTH_MAX:
            words = f"{words[:NAME_LENGTH_MAX]}-{crc32(self.test.encode()):08x}"
        return f"{words}.json"

    def save(self, folder: Path, timeline: Timeline) -> Path:
        """Write this run and its timeline into a folder. Returns the path of the JSON file."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.file_name
        values: dict[str, object] = {
            "test": self.test,
            "error": self.error,
            "plan": self.plan.to_json(),
            "faults": self.faults.to_json(),
        }
        if self.rules is not None:
            values["rules"] = asdict(self.rules)
        path.write_text(json.dumps(values, indent=2) + "\n")
        title = f"Timeline of {self.test or 'a run'}"
        path.with_suffix(".html").write_text(timeline.as_html(title))
        return path


def load_failing_run(path: Path) -> FailingRun | None:
    """Return the failing run in a file, or None if the file is something else.

    Raises ValueError if its plan or its faults are malformed.
    """
    values = json.loads(path.read_text())
    if not isinstance(values, dict) or not {"test", "plan", "faults"} <= values.keys():
        return None
    try:
        return FailingRun(
            test=str(values["test"]),
            plan=WorldPlan.from_json(values["plan"]),
            faults=FaultSchedule.from_json(values["faults"]),
            rules=RuleChoices(**values["rules"]) if "rules" in values else None,
            error=str(values.get("error", "")),
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path.name} is no failing run of a world: {error!r}") from error


def current_test() -> str:
    """Return the id of the test that pytest is running, or an empty text."""
    return os.environ.get(TEST_VARIABLE, "").rpartition(" ")[0]


def run_to_replay() -> FailingRun | None:
    """Return the run that the environment asks to repeat, or None.

    Raises ValueError if its file is malformed, and OSError if the file cannot be read.
    """
    path = os.environ.get(REPLAY_VARIABLE)
    if not path:
        return None
    found = load_failing_run(Path(path))
    if found is None:
        raise ValueError(f"{path} is no failing run of a world")
    return found


def drawn_run_to_replay() -> FailingRun | None:
    """Return the run that the environment asks to repeat, if strategies must draw its plan and its
    faults. Returns None for a state machine, whose choices are repeated as a whole.

    Raises ValueError if its file is malformed, and OSError if the file cannot be read.
    """
    found = run_to_replay()
    return found if found is not None and found.rules is None else None


def failure_folder() -> Path | None:
    """Return the folder for files of failing runs, or None if no files should be written."""
    folder = os.environ.get(FOLDER_VARIABLE, FOLDER)
    return Path(folder) if folder else None
