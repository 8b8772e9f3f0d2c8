"""Failures worth keeping: a run as a JSON file, played again by every test run.

A case of the corpus broke an invariant once; since it was fixed it must run clean.
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
    """One run that failed."""

    engine: str
    subject: str
    seed: int
    budget: int
    decisions: tuple[int, ...]
    invariant: str
    """What it broke."""
    what: str
    """One sentence: what went wrong."""
    mutant: str = ""
    """The planted bug that it shows; empty: a bug of our own."""
    fixed_in: str = ""
    """The commit that put it right; empty while it is open."""

    @property
    def file_name(self) -> str:
        """Return the name it is kept under."""
        return f"{self.engine}-{self.subject}-{self.invariant}-{self.seed}.json"


def save(case: Case, folder: Path) -> Path:
    """Write a case into a folder and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / case.file_name
    fields = asdict(case)
    decisions = fields.pop("decisions")
    head = json.dumps(fields, indent=2)[:-2]
    path.write_text(f'{head},\n  "decisions": {json.dumps(list(decisions))}\n}}\n')
    return path


def load(path: Path) -> Case:
    """Read a case; CorruptDataError when the file is none."""
    try:
        fields = json.loads(path.read_text())
        fields["decisions"] = tuple(int(value) for value in fields["decisions"])
        return Case(**fields)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptDataError(f"{path.name}: no case of the world: {error}") from error


def cases_in(folder: Path) -> Iterator[tuple[Path, Case]]:
    """Yield every case of a folder, by name."""
    for path in sorted(folder.glob("*.json")):
        yield path, load(path)


def replay(case: Case, decisions: Sequence[int] | None = None) -> RunOutcome:
    """Run a case again, or a variation of it."""
    chosen = case.decisions if decisions is None else decisions
    engine = make_engine(case.engine, case.subject)
    return run_once(engine, Chance(case.seed, replay=chosen), budget=case.budget)
