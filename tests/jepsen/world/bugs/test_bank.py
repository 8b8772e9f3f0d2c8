"""The bug bank: every planted bug is found, and nothing of it stays behind.

A hunt begins at a seed that found its bug before; with OTTLA_BANK=full it begins at the first.
"""

import os
import subprocess
import sys

import pytest

from ottla.jepsen.world.bugs import bank
from ottla.jepsen.world.bugs.mutant import Mutant, patched
from ottla.jepsen.world.engine import make_engine
from ottla.jepsen.world.runner import Job, run_many
from ottla.model.errors import RefusedError

QUICK = [each for each in bank.mutants() if each.is_quick]
IS_FULL = os.environ.get("OTTLA_BANK") == "full"
FOUND_AT = {
    "raft-vote-forgotten": 1175,
    "raft-vote-by-length": 207,
    "raft-epoch-of-log": 152,
    "raft-figure-8": 808,
    "raft-watermark": 378,
    "raft-observer-counts": 1363,
    "other-clusters-heard": 72,
    "txn-marked-early": 69,
    "txn-offsets-without-it": 36,
    "txn-overflow-keeps-id": 25,
    "txn-zombie-ends": 10,
    "log-forgotten-first": 28,
    "replication-pending-in-force": 26,
    "replication-promise-unflushed": 35,
    "replication-tail-unflushed": 85,
    "replication-session-dropped": 107,
    "controller-silent-loss": 29,
    "controller-no-compare": 27,
    "controller-deposed-alters": 27,
    "controller-ineligible": 25,
    "group-any-sync": 145,
    "group-silent-stay-classic": 313,
    "group-topics-unseen": 257,
}
"""The seeds that found what takes long to find.  A change of the walks moves them: then the hunt
goes on from here, and this table wants new ones."""
SECONDS_MAX = 600
"""Wall time of a hunt; its seeds bound it, a core that others use only lengthens it."""
SUBJECTS = sorted({(each.engine, each.subject) for each in bank.mutants()})
BUDGET_MAX = 500
"""Events of a run that only shows that nothing was left behind."""


@pytest.mark.interpreted_only("plants bugs in the place of functions")
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
        mutant.first_seed if IS_FULL else FOUND_AT.get(mutant.name, mutant.first_seed),
        count=mutant.seed_count,
        seconds=SECONDS_MAX,
        ends_at_failure=True,
    )

    assert tally.violation_count > 0, f"{mutant.sentence}: not found in {tally.run_count} runs"
    violation = tally.failures[0].violation
    assert violation is not None
    assert not mutant.killed_by or violation.invariant in mutant.killed_by


@pytest.mark.interpreted_only("plants bugs in the place of functions")
@pytest.mark.parametrize(("engine", "subject"), SUBJECTS)
def test_mutants_are_taken_back_whole(engine: str, subject: str) -> None:
    before = clean_hash(engine, subject)

    for mutant in bank.mutants():
        if (mutant.engine, mutant.subject) == (engine, subject):
            with mutant.apply():
                pass

    if clean_hash(engine, subject) != before:
        pytest.fail(f"something is left of {first_left_behind(engine, subject)}")


def clean_hash(engine: str, subject: str) -> str:
    """Return what a run without any mutant comes to."""
    budget = min(make_engine(engine, subject).budget, BUDGET_MAX)
    return run_many(Job(engine=engine, subject=subject, budget=budget), 5, count=1).trace_hash


NAMING = """
import sys
from ottla.jepsen.world.bugs import bank
from ottla.jepsen.world.engine import make_engine
from ottla.jepsen.world.runner import run_seed
engine, subject, budget = make_engine(*sys.argv[1:3]), sys.argv[2], int(sys.argv[3])
before = run_seed(engine, 5, budget).trace_hash
for mutant in bank.mutants():
    if (mutant.engine, mutant.subject) == (engine.name, subject):
        with mutant.apply():
            pass
        if run_seed(engine, 5, budget).trace_hash != before:
            print(mutant.name)
            break
"""


def first_left_behind(engine: str, subject: str) -> str:
    """Return the first mutant after which a run differs, one by one in a process of their own."""
    command = [sys.executable, "-c", NAMING, engine, subject, str(BUDGET_MAX)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip() or "none that shows alone"


def test_mutants_are_told_apart_and_tell_what_they_do() -> None:
    for mutant in bank.mutants():
        assert mutant.name.replace("-", "").isalnum(), mutant.name
        assert mutant.sentence
        assert bank.mutant(mutant.name) == mutant
    with pytest.raises(RefusedError):
        bank.mutant("no-such-bug")


def test_no_bug_is_planted_where_compiled_callers_would_not_meet_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.jepsen.world.bugs.mutant.installed_form", lambda: "compiled")
    with pytest.raises(RefusedError, match="interpreted"):
        bank.mutants()[0].apply()


def test_a_patch_goes_back_also_after_an_error() -> None:
    class Owner:
        @property
        def size(self) -> int:
            return 1

    with pytest.raises(ValueError, match="over"), patched(Owner, size=property(lambda self: 2)):
        assert Owner().size == 2
        raise ValueError("over")

    assert Owner().size == 1
