"""Reports the results of a search for bugs: as text, as JSON, and as cases of the corpus."""

import time
from collections.abc import Sequence
from typing import Any

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.corpus import Case
from ottla.jepsen.world.engine import RunOutcome, make_engine, run_once
from ottla.jepsen.world.runner import Job, RunTotals, bounded_runs
from ottla.jepsen.world.shrink import TRIALS_MAX, shrink
from ottla.jepsen.world.trace import Part, listening

SHRINK_SECONDS = 30.0
"""Time limit in seconds for shrinking one failing run. After it, the smallest failing run so far is
used."""


def case_of(job: Job, outcome: RunOutcome, trials_max: int | None = None) -> Case:
    """Return the failing run of a search job as a case of the corpus, reduced as far as possible
    within the time limit.

    If the job has a mutant, the caller must have applied it. `trials_max` limits the number of runs
    during the reduction; None selects the default limit.
    """
    violation = outcome.violation
    assert violation is not None
    engine = make_engine(job.engine, job.subject)

    deadline = time.monotonic() + SHRINK_SECONDS
    decisions: Sequence[int] = outcome.decisions
    with bounded_runs(job.subject) as start_clock:

        def fails(decisions: Sequence[int]) -> bool:
            start_clock()
            again = run_once(engine, Chance(outcome.seed, replay=decisions), budget=job.budget)
            return again.violation is not None and again.violation.invariant == violation.invariant

        # A run that fails only because of state left by earlier runs cannot be replayed.
        if trials_max != 0 and fails(decisions):
            decisions = shrink(
                decisions,
                fails,
                trials_max=trials_max or TRIALS_MAX,
                has_time=lambda: time.monotonic() < deadline,
            )
    return Case(
        engine=job.engine,
        subject=job.subject,
        seed=outcome.seed,
        budget=job.budget,
        decisions=tuple(decisions),
        invariant=violation.invariant,
        what=violation.detail,
        mutant=job.mutant or "",
    )


def replayed_events(case: Case) -> tuple[RunOutcome, list[str]]:
    """Repeat the failing run of a case. Returns its outcome, and its events, each as a line of
    text."""
    lines: list[str] = []

    def note(parts: tuple[Part, ...]) -> None:
        lines.append(" ".join(map(str, parts)))

    engine = make_engine(case.engine, case.subject)
    with listening(note):
        chance = Chance(case.seed, replay=case.decisions)
        outcome = run_once(engine, chance, budget=case.budget)
    return outcome, lines


def command_of(job: Job, seed: int) -> str:
    """Return the shell command that repeats the run of a seed with the engine, subject and mutant
    of the job."""
    words = ["ottla world run", f"--engine {job.engine}", f"--subject {job.subject}"]
    if job.mutant is not None:
        words.append(f"--mutant {job.mutant}")
    return " ".join([*words, f"--seed {seed}", f"--budget {job.budget}"])


def figures_of(job: Job, first_seed: int, totals: RunTotals, seconds: float) -> dict[str, Any]:
    """Return all counts and rates of a search as values that can be written as JSON."""
    required = make_engine(job.engine, job.subject).required
    return {
        "engine": job.engine,
        "subject": job.subject,
        "mutant": job.mutant,
        "seed": first_seed,
        "seeds": totals.run_count,
        "events": totals.event_count,
        "sim_s": totals.sim_ms / 1000,
        "seconds": round(seconds, 3),
        "seeds_per_s": round(totals.run_count / max(1e-6, seconds), 1),
        "events_per_s": round(totals.event_count / max(1e-6, seconds), 1),
        "sim_s_per_s": round(totals.sim_ms / 1000 / max(1e-6, seconds), 1),
        "figures": dict(sorted(totals.figures.items())),
        "rare": dict(sorted(totals.rare.items())),
        "rare_missed": totals.missed(required),
        "violations": totals.violation_count,
        "trace_hash": totals.trace_hash,
        "failures": [
            {
                "seed": outcome.seed,
                "invariant": outcome.violation.invariant,
                "detail": outcome.violation.detail,
                "trace_hash": outcome.trace_hash,
                "command": command_of(job, outcome.seed),
            }
            for outcome in totals.failures
            if outcome.violation is not None
        ],
    }
