"""What a search found, as words and figures: for people, for machines, and for the corpus."""

import time
from collections.abc import Sequence
from typing import Any

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.corpus import Case
from ottla.jepsen.world.engine import RunOutcome, make_engine, run_once
from ottla.jepsen.world.runner import Job, Tally, bounded_runs
from ottla.jepsen.world.shrink import TRIALS_MAX, shrink
from ottla.jepsen.world.trace import Part, listening

SHRINK_SECONDS = 30.0
"""Time for making one failure small; what is smallest by then is kept."""


def case_of(job: Job, outcome: RunOutcome, trials_max: int | None = None) -> Case:
    """Return a failing run as a case of the corpus, made as small as there is time for.

    A job's mutant must be applied; `trials_max` bounds the runs that shrinking takes.
    """
    violation = outcome.violation
    assert violation is not None
    engine = make_engine(job.engine, job.subject)

    deadline = time.monotonic() + SHRINK_SECONDS
    decisions: Sequence[int] = outcome.decisions
    with bounded_runs() as start_clock:

        def fails(decisions: Sequence[int]) -> bool:
            start_clock()
            again = run_once(engine, Chance(outcome.seed, replay=decisions), budget=job.budget)
            return again.violation is not None and again.violation.invariant == violation.invariant

        # A run that fails only together with what other runs left behind cannot be replayed.
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


def story_of(case: Case) -> tuple[RunOutcome, list[str]]:
    """Run a case again; return what came of it and every event as a line."""
    lines: list[str] = []

    def hear(parts: tuple[Part, ...]) -> None:
        lines.append(" ".join(map(str, parts)))

    engine = make_engine(case.engine, case.subject)
    with listening(hear):
        chance = Chance(case.seed, replay=case.decisions)
        outcome = run_once(engine, chance, budget=case.budget)
    return outcome, lines


def command_of(job: Job, seed: int) -> str:
    """Return the one command that shows a seed's run again."""
    words = ["ottla world run", f"--engine {job.engine}", f"--subject {job.subject}"]
    if job.mutant is not None:
        words.append(f"--mutant {job.mutant}")
    return " ".join([*words, f"--seed {seed}", f"--budget {job.budget}"])


def figures_of(job: Job, first_seed: int, tally: Tally, seconds: float) -> dict[str, Any]:
    """Return everything a search counted, for JSON."""
    required = make_engine(job.engine, job.subject).required
    return {
        "engine": job.engine,
        "subject": job.subject,
        "mutant": job.mutant,
        "seed": first_seed,
        "seeds": tally.run_count,
        "events": tally.event_count,
        "sim_s": tally.sim_ms / 1000,
        "seconds": round(seconds, 3),
        "seeds_per_s": round(tally.run_count / max(1e-6, seconds), 1),
        "events_per_s": round(tally.event_count / max(1e-6, seconds), 1),
        "sim_s_per_s": round(tally.sim_ms / 1000 / max(1e-6, seconds), 1),
        "figures": dict(sorted(tally.figures.items())),
        "rare": dict(sorted(tally.rare.items())),
        "rare_missed": tally.missed(required),
        "violations": tally.violation_count,
        "trace_hash": tally.trace_hash,
        "failures": [
            {
                "seed": outcome.seed,
                "invariant": outcome.violation.invariant,
                "detail": outcome.violation.detail,
                "trace_hash": outcome.trace_hash,
                "command": command_of(job, outcome.seed),
            }
            for outcome in tally.failures
            if outcome.violation is not None
        ],
    }
