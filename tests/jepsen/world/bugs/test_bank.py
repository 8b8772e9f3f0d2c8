"""The bug bank: every planted bug is found, and nothing of it stays behind."""

from functools import cache

import pytest

from ottla.jepsen.world.bugs import bank
from ottla.jepsen.world.bugs.mutant import Mutant, patched
from ottla.jepsen.world.engine import make_engine
from ottla.jepsen.world.runner import Job, run_many
from ottla.model.errors import RefusedError

QUICK = [each for each in bank.mutants() if each.is_quick]
SECONDS_MAX = 60
BUDGET_MAX = 5_000
"""Events of a run that only shows that nothing was left behind."""


@pytest.mark.parametrize("mutant", QUICK, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    engine = make_engine(mutant.engine, mutant.subject)
    job = Job(
        engine=mutant.engine,
        subject=mutant.subject,
        budget=mutant.budget or engine.budget,
        mutant=mutant.name,
    )

    tally = run_many(
        job,
        mutant.first_seed,
        count=mutant.seed_count,
        seconds=SECONDS_MAX,
        ends_at_failure=True,
    )

    assert tally.violation_count > 0, f"{mutant.sentence}: not found in {tally.run_count} runs"
    violation = tally.failures[0].violation
    assert violation is not None
    assert not mutant.killed_by or violation.invariant in mutant.killed_by


@pytest.mark.parametrize("mutant", bank.mutants(), ids=lambda mutant: mutant.name)
def test_a_mutant_is_taken_back_whole(mutant: Mutant) -> None:
    before = hash_before(mutant.engine, mutant.subject)

    with mutant.apply():
        pass

    assert clean_hash(mutant.engine, mutant.subject) == before


def clean_hash(engine: str, subject: str) -> str:
    """Return what a run without any mutant comes to."""
    budget = min(make_engine(engine, subject).budget, BUDGET_MAX)
    return run_many(Job(engine=engine, subject=subject, budget=budget), 5, count=1).trace_hash


@cache
def hash_before(engine: str, subject: str) -> str:
    """Return what it came to before the first mutant of that engine."""
    return clean_hash(engine, subject)


def test_mutants_are_told_apart_and_tell_what_they_do() -> None:
    for mutant in bank.mutants():
        assert mutant.name.replace("-", "").isalnum(), mutant.name
        assert mutant.sentence
        assert bank.mutant(mutant.name) == mutant
    with pytest.raises(RefusedError):
        bank.mutant("no-such-bug")


def test_a_patch_goes_back_also_after_an_error() -> None:
    class Owner:
        @property
        def size(self) -> int:
            return 1

    with pytest.raises(ValueError, match="over"), patched(Owner, size=property(lambda self: 2)):
        assert Owner().size == 2
        raise ValueError("over")

    assert Owner().size == 1
