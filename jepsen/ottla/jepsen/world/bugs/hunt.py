"""Applies one mutant (a deliberate bug), and measures the time until a search engine finds it."""

import time
from dataclasses import dataclass
from typing import Any

from ottla.jepsen.world.bugs.mutant import Mutant
from ottla.jepsen.world.engine import make_engine
from ottla.jepsen.world.runner import Job, run_many


@dataclass(frozen=True, slots=True, kw_only=True)
class HuntResult:
    """Result of a search for one mutant (deliberate bug): whether an engine found it, and after how
    many seconds."""

    mutant: Mutant
    run_count: int
    event_count: int
    seconds: float
    seed: int | None
    """First seed whose run reveals the mutant (deliberate bug), or None if no run does."""
    invariant: str = ""

    def row(self) -> dict[str, Any]:
        """Return the result of the search as a row of the table of mutants, with its cells by
        column name."""
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


def hunt(mutant: Mutant, *, cpu_seconds: float, processes: int = 1) -> HuntResult:
    """Run seeds with the mutant (deliberate bug) applied, until a run finds it or each process has
    used `cpu_seconds` of CPU time. The first seed is the mutant's `first_seed`. Returns the result.

    CPU time is limited, because a limit on wall-clock time ended the search for rare bugs too early
    on a busy machine.
    """
    engine = make_engine(mutant.engine, mutant.subject)
    job = Job(
        engine=mutant.engine,
        subject=mutant.subject,
        budget=mutant.budget or engine.budget,
        mutant=mutant.name,
    )
    started = time.perf_counter()
    totals = run_many(
        job,
        mutant.first_seed,
        cpu_seconds=cpu_seconds * processes,
        processes=processes,
        ends_at_failure=True,
    )
    failure = totals.failures[0] if totals.failures else None
    return HuntResult(
        mutant=mutant,
        run_count=totals.run_count,
        event_count=totals.event_count,
        seconds=time.perf_counter() - started,
        seed=None if failure is None else failure.seed,
        invariant="" if failure is None or not failure.violation else failure.violation.invariant,
    )
