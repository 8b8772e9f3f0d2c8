"""Saves, loads and replays the corpus of failing runs: JSON files, each with the decisions that
reproduce one broken invariant.

The test suite replays the cases in `tests/jepsen/corpus`. Each of these cases names the commit that
fixed its bug, so its replay must find no violation. A newly saved case names no commit yet.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome, make_engine, run_once
from ottla.model.errors import CorruptDataError


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One failing run of a search engine, with the random decisions that reproduce it."""

    engine: str
    subject: str
    seed: int
    budget: int
    decisions: tuple[int, ...]
    invariant: str
    """Name of the invariant that the failing run broke."""
    what: str
    """Description of the violation (the broken invariant) in one sentence."""
    mutant: str = ""
    """Name of the mutant (deliberate bug) that the failing run reveals. Empty if the run reveals a
    real bug."""
    fixed_in: str = ""
    """Git commit that fixed the bug of this failing run, or "" if the bug is not fixed yet. The
    test suite accepts only cases with a commit."""

    @property
    def file_name(self) -> str:
        """Return the name of the file in which the failing run is saved."""
        return f"{self.engine}-{self.subject}-{self.invariant}-{self.seed}.json"


def save(case: Case, folder: Path) -> Path:
    """Write a failing run as a JSON file into a folder, and return the file's path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / case.file_name
    fields = asdict(case)
    decisions = fields.pop("decisions")
    head = json.dumps(fields, indent=2)[:-2]
    path.write_text(f'{head},\n  "decisions": {json.dumps(list(decisions))}\n}}\n')
    return path


def load(path: Path) -> Case:
    """Return the failing run stored in a JSON file. Raises CorruptDataError if the file is
    malformed."""
    try:
        fields = json.loads(path.read_text())
        fields["decisions"] = tuple(int(value) for value in fields["decisions"])
        return Case(**fields)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptDataError(f"{path.name}: no case of the world: {error}") from error


def cases_in(folder: Path) -> Iterator[tuple[Path, Case]]:
    """Yield every failing run saved in a folder with its file's path, sorted by file name."""
    for path in sorted(folder.glob("*.json")):
        yield path, load(path)


def replay(case: Case, decisions: Sequence[int] | None = None) -> RunOutcome:
    """Repeat a failing run with its own random decisions, or with `decisions` if it is not None.
    Returns the outcome."""
    chosen = case.decisions if decisions is None else decisions
    engine = make_engine(case.engine, case.subject)
    return run_once(engine, Chance(case.seed, replay=chosen), budget=case.budget)
