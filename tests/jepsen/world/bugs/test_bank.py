"""The bug bank: every planted bug is found, and is removed without a trace.

A hunt begins at a seed that found its bug before; with OTTLA_BANK=full it begins at the first.
With OTTLA_WORLDS=full the bugs of `COSTLY` and `TWICE` are hunted, too.
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
from tests.jepsen import search_length

COSTLY = frozenset({"acknowledged-at-append"})
"""Bugs whose hunt costs more than 20 s of CPU from any seed that finds them. Walks find a bug of
the same kind (`replication-acks-at-once`) in every run."""
TWICE = frozenset(
    {
        "cluster-share-backoff-lost",
        "cluster-share-delay-lost",
        "cluster-share-key-freed",
    }
)
"""Bugs of whole clusters that the walk on shares finds in every run, at a tenth of the CPU. Another
bug of each subject is hunted in whole clusters."""
QUICK = [
    each
    for each in bank.mutants()
    if each.is_quick and (search_length.IS_FULL or each.name not in COSTLY | TWICE)
]
IS_FULL = os.environ.get("OTTLA_BANK") == "full"
FOUND_AT = {
    "members-in-force-late": 15,
    "members-two-formatted": 81,
    "replication-old-promises": 44,
    "group-expired-mute": 52,
    "share-failed-write": 30,
    "share-load-gaps": 13,
    "share-old-leader": 33,
    "share-delay-lost": 49,
    "share-backoff-lost": 439,
    "share-key-kept": 286,
    "share-letter-lost": 165,
    "duplicates-appended": 1,
    "cluster-share-old-leader": 2,
    "cluster-share-delay-lost": 2,
    "cluster-share-backoff-lost": 13,
    "share-late-write": 4_100,
    "share-merge-last": 1_762,
    "members-snapshot-old": 6_940,
    "members-removed-joins": 9_990,
    "members-added-twice": 5_101,
    "members-kept-at-record": 749,
    "members-unflushed-observer": 1_470,
    "members-unreachable": 239,
    "members-id-is-enough": 480,
    "controller-sessions-dropped": 389,
    "members-join-before-fetch": 21,
    "raft-vote-forgotten": 1175,
    "raft-vote-by-length": 207,
    "raft-epoch-of-log": 152,
    "raft-figure-8": 808,
    "raft-watermark": 378,
    "raft-observer-counts": 1363,
    "other-clusters-heard": 72,
    "txn-marked-early": 73,
    "txn-offsets-without-it": 39,
    "tier-cache-by-offset": 11,
    "txn-overflow-keeps-id": 25,
    "txn-zombie-ends": 10,
    "voter-end-not-noted": 274,
    "log-forgotten-first": 28,
    "log-truncation-unflushed": 107,
    "log-old-snapshot-stays": 795,
    "loss-hole-claimed": 35,
    "voter-log-not-compared": 32,
    "epochs-used-up": 84,
    "controller-elect-anybody": 13,
    "group-removed-singly": 84,
    "log-emptied-first": 22,
    "raft-wiped-voter": 101,
    "replication-pending-in-force": 26,
    "replication-promise-unflushed": 35,
    "replication-tail-unflushed": 85,
    "replication-session-dropped": 107,
    "controller-silent-loss": 31,
    "controller-no-compare": 27,
    "controller-deposed-alters": 27,
    "controller-ineligible": 25,
    "group-any-sync": 145,
    "group-silent-stay-classic": 313,
    "group-topics-unseen": 257,
    "txn-fenced-end-is-a-retry": 204,
    "members-outsider-no-vote": 6,
    "any-epoch-believed": 5,
    "second-leader-believed": 9,
    "raft-cut-short": 7,
    "replication-written-is-flushed": 5,
    "replication-change-forgotten": 6,
    "replication-join-any": 10,
    "replication-never-part": 8,
    "replication-one-batch": 7,
    "replication-flush-nothing": 9,
    "loss-unnamed": 6,
    "loss-eligible": 6,
    "loss-last-known": 8,
    "controller-elect-fenced": 1,
    "controller-last-known": 3,
    "controller-reassigned-early": 10,
    "controller-second-process": 1,
    "controller-unfence-blind": 10,
    "log-leaving-unflushed": 11,
    "log-unsealed-trusted": 7,
    "log-torn-append": 24,
    "log-epochs-kept": 11,
    "group-deletion-unwritten": 5,
    "group-offset-returns": 5,
    "group-old-kind": 5,
    "group-deadline-stands": 11,
    "group-resign-mute": 10,
    "group-expired-answered": 8,
    "horizon-not-stamped": 1,
}
"""The seeds that found slow bugs. A change of the walks moves them: then the hunt continues from
here, and this table needs new ones."""
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

    totals = run_many(
        job,
        mutant.first_seed if IS_FULL else FOUND_AT.get(mutant.name, mutant.first_seed),
        count=mutant.seed_count,
        seconds=SECONDS_MAX,
        ends_at_failure=True,
    )

    assert totals.violation_count > 0, f"{mutant.sentence}: not found in {totals.run_count} runs"
    violation = totals.failures[0].violation
    assert violation is not None
    assert not mutant.killed_by or violation.invariant in mutant.killed_by


@pytest.mark.interpreted_only("plants bugs in the place of functions")
@pytest.mark.parametrize(("engine", "subject"), SUBJECTS)
def test_mutants_are_taken_back_whole(engine: str, subject: str) -> None:
    # Two runs of a whole cluster cost 7 s of CPU, so these show it by the code alone.
    is_run = engine == "walk" or search_length.IS_FULL
    make_engine(engine, subject)
    attributes = code_attributes()
    before = clean_hash(engine, subject) if is_run else ""

    for mutant in bank.mutants():
        if (mutant.engine, mutant.subject) == (engine, subject):
            with mutant.apply():
                pass
    now = code_attributes()
    changed = [name for name, value in attributes.items() if now.get(name) is not value]
    assert not changed, f"a mutant leaves {changed}"

    if is_run and clean_hash(engine, subject) != before:
        pytest.fail(f"something is left of {first_left_behind(engine, subject)}")


def code_attributes() -> dict[str, object]:
    """Return the attributes of all loaded modules of Ottla, and of their classes, by full name."""
    found: dict[str, object] = {}
    for name, module in list(sys.modules.items()):
        if not name.startswith("ottla."):
            continue
        for key, value in vars(module).items():
            found[f"{name}.{key}"] = value
            if isinstance(value, type) and value.__module__ == name:
                found |= {f"{name}.{key}.{inner}": each for inner, each in vars(value).items()}
    return found


def clean_hash(engine: str, subject: str) -> str:
    """Return the trace hash of a run without any mutant."""
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


def test_mutants_have_distinct_names_and_descriptions() -> None:
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
