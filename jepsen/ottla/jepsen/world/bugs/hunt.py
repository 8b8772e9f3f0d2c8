"""Plants one bug and measures how long the engine takes to find it."""

import time
from dataclasses import dataclass
from typing import Any

from ottla.jepsen.world.bugs.mutant import Mutant
from ottla.jepsen.world.engine import make_engine
from ottla.jepsen.world.runner import Job, run_many


@dataclass(frozen=True, slots=True, kw_only=True)
class HuntResult:
    """How a hunt for one mutant ended."""

    mutant: Mutant
    run_count: int
    event_count: int
    seconds: float
    seed: int | None
    """The first seed that showed it; None: it lived."""
    invariant: str = ""

    def row(self) -> dict[str, Any]:
        """Return the line of a table."""
        return {
            "name": self.mutant.name,
            "sentence": self.mutant.sentence,
            "engine": self.mutant.engine,
            "subject": self.mutant.subject,
            "seed": self.seed,
            "runs": self.run_count,
            "events": self.event_count,
            "seconds": round(self.seconds, 2),
            "invariant": self.invariant,
            "equivalent": self.mutant.equivalent,
        }


def hunt(mutant: Mutant, *, seconds: float, processes: int = 1) -> HuntResult:
    """Run seeds from its first on with the bug planted until one shows it, or time is over."""
    engine = make_engine(mutant.engine, mutant.subject)
    job = Job(
        engine=mutant.engine,
        subject=mutant.subject,
        budget=mutant.budget or engine.budget,
        mutant=mutant.name,
    )
    started = time.perf_counter()
    tally = run_many(
        job, mutant.first_seed, seconds=seconds, processes=processes, ends_at_failure=True
    )
    failure = tally.failures[0] if tally.failures else None
    return HuntResult(
        mutant=mutant,
        run_count=tally.run_count,
        event_count=tally.event_count,
        seconds=time.perf_counter() - started,
        seed=None if failure is None else failure.seed,
        invariant="" if failure is None or not failure.violation else failure.violation.invariant,
    )
