"""The bug bank: every planted bug is found, and nothing of it stays behind."""

import pytest

from ottla.jepsen.world.bugs import bank
from ottla.jepsen.world.bugs.mutant import Mutant, patched
from ottla.jepsen.world.engine import make_engine
from ottla.jepsen.world.runner import Job, run_many
from ottla.model.errors import RefusedError

QUICK = [each for each in bank.mutants() if each.is_quick]
SECONDS_MAX = 60


@pytest.mark.parametrize("mutant", QUICK, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    engine = make_engine(mutant.engine, mutant.subject)
    job = Job(
        engine=mutant.engine, subject=mutant.subject, budget=engine.budget, mutant=mutant.name
    )

    tally = run_many(job, 0, count=mutant.seed_count, seconds=SECONDS_MAX, ends_at_failure=True)

    assert tally.violation_count > 0, f"{mutant.sentence}: not found in {tally.run_count} runs"
    violation = tally.failures[0].violation
    assert violation is not None
    assert not mutant.killed_by or violation.invariant in mutant.killed_by


@pytest.mark.parametrize("mutant", bank.mutants(), ids=lambda mutant: mutant.name)
def test_a_mutant_is_taken_back_whole(mutant: Mutant) -> None:
    engine = make_engine(mutant.engine, mutant.subject)
    clean = Job(engine=mutant.engine, subject=mutant.subject, budget=engine.budget)
    before = run_many(clean, 5, count=2)

    with mutant.apply():
        pass

    assert run_many(clean, 5, count=2).trace_hash == before.trace_hash


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
